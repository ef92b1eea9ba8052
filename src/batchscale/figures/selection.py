"""Records narrowed to the workloads and batch sizes that a figure or a report is about."""

from collections.abc import Sequence

from batchscale.errors import UnknownNameError, one_line, suggest_names
from batchscale.records.frames import Records
from batchscale.spec import WorkloadName


def select_records(records: Records, workloads: Sequence[str] = (), batch_sizes: Sequence[int] = ()) -> Records:
    """The records of these workloads (all if none is named) at these batch sizes (likewise).

    Raises:
        UnknownNameError: a workload or a batch size is not there.
    """
    chosen = records
    if workloads:
        known = {str(name): name for name in records.workloads}
        for text in workloads:
            if text.strip("/") not in known:
                raise UnknownNameError(f"No records of workload '{one_line(text)}'; {suggest_names(text, known)}")
        chosen = _only(records, [known[text.strip("/")] for text in workloads])
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
    import polars as pl

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
