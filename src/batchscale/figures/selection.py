"""Records narrowed to the workloads and batch sizes that a figure or a report is about."""

from collections.abc import Sequence

import polars as pl

from batchscale.errors import UnknownNameError
from batchscale.records.frames import Records
from batchscale.spec.workload_name import WorkloadName, match_workloads


def select_records(records: Records, workloads: Sequence[str] = (), batch_sizes: Sequence[int] = ()) -> Records:
    """The records of these workloads (names or parts of names; all if there is none) at these batch sizes (likewise).

    Raises:
        UnknownNameError: a workload or a batch size is not there.
    """
    chosen = records
    if workloads:
        chosen = _only(records, [name for text in workloads for name in match_workloads(records.workloads, text)])
    if batch_sizes:
        there = set(chosen.studies["batch_size"].to_list())
        missing = [size for size in batch_sizes if size not in there]
        if missing:
            raise UnknownNameError(
                f"No study has batch size {missing[0]:,}; there are {', '.join(f'{size:,}' for size in sorted(there))}."
            )
        chosen = chosen.filter(batch_size=list(batch_sizes))
    return chosen


def _only(records: Records, names: Sequence[WorkloadName]) -> Records:
    keys = pl.DataFrame(
        [(name.dataset, name.model, name.optimizer) for name in names],
        schema=["dataset", "model", "optimizer"],
        orient="row",
    )
    on = list(keys.columns)
    return Records(
        records.studies.join(keys, on=on, how="semi", maintain_order="left"),
        records.trials.join(keys, on=on, how="semi", maintain_order="left"),
        records.sources,
    )
