"""The metadata of a workload's run in a report: spaces, budgets, versions, seeds, hardware, time, experiment files."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from batchscale.errors import one_line
from batchscale.figures.kinds.space import range_text
from batchscale.figures.names import metaparameter_label
from batchscale.formatting import duration
from batchscale.records.frames import Records, fixed_values, searched_spaces
from batchscale.records.metadata.columns import METADATA
from batchscale.records.model import Status
from batchscale.spec.space import ParameterConfig
from batchscale.spec.workload_name import WorkloadName

MOST_CHARACTERS = 50_000  # of one file; a longer one would make the page unreadable


@dataclass(frozen=True)
class RunMetadata:
    """The rows of the table on a workload's run, and the number of its trials by status."""

    rows: tuple[tuple[str, str], ...]
    statuses: Mapping[str, int]


def read_metadata(records: Records, workload: WorkloadName) -> RunMetadata:
    """Return the metadata of one workload's run."""
    selected = records.workload(workload)
    studies, trials = (frame[METADATA].struct.unnest() for frame in (selected.studies, selected.trials))
    seconds = float(trials["total_s"].sum()) if trials["total_s"].count() else None
    statuses = {status.value: int((selected.trials["status"] == status.value).sum()) for status in Status}
    rows = [
        ("data set", workload.dataset),
        ("model", workload.model),
        ("optimizer", workload.optimizer),
        ("batch sizes", _numbers(selected.studies["batch_size"].sort())),
        *_space_rows(selected),
        ("step budget", _budgets(selected)),
        ("stop rule", _values(studies["stop_rule"])),
        ("trials ended by", _counts(trials["stop_reason"])),
        ("fixed values", _values(map(_fixed, fixed_values(selected).values()))),
        ("code version", _values(studies["code_version"])),
        ("seeds of the studies", _values(studies["seed"])),
        ("experiment hash", _values(studies["spec_hash"])),
        ("hardware", _values(trials["device_kind"])),
        ("time in trials", "not recorded" if seconds is None else duration(seconds)),
    ]
    return RunMetadata(tuple((name, text) for name, text in rows if text), statuses)


def experiment_files(records: Records) -> tuple[str, ...]:
    """Return the text of every experiment file of the studies, each once; none for published records.

    With these, the page is enough to run the studies again.
    """
    texts = records.studies.sort("batch_size").select(pl.col(METADATA).struct.field("experiment")).to_series()
    return tuple(_shortened(text.strip()) for text in texts.drop_nulls().unique(maintain_order=True) if text.strip())


def _shortened(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}\n# … cut here, after {MOST_CHARACTERS:,} characters; study.json has all of it"


def _space_rows(records: Records) -> list[tuple[str, str]]:
    """Return the range of every tuned metaparameter; ranges that differ name their batch sizes."""
    ranges: dict[str, dict[str, list[int]]] = {}
    for (*_, size), spaces in sorted(searched_spaces(records).items()):
        for config in spaces[-1]:
            ranges.setdefault(config.name, {}).setdefault(_range(config), []).append(size)
    rows = []
    for name, texts in ranges.items():
        ranges_text = (
            list(texts)
            if len(texts) == 1
            else [f"{text} at {_numbers(pl.Series(sizes))}" for text, sizes in texts.items()]
        )
        more = [f"and {len(ranges_text) - 6} more ranges"] if len(ranges_text) > 6 else []
        rows.append((f"range of {metaparameter_label(name)}", "; ".join([*ranges_text[:6], *more])))
    return rows


def _range(config: ParameterConfig) -> str:
    if config.feasible_points:
        return "one of " + ", ".join(f"{point:g}" for point in config.feasible_points)
    scale = config.scale.value.removesuffix("_SCALE").lower().replace("_", " ")
    return f"{range_text(config.min_value, config.max_value)} ({scale})"


def _budgets(records: Records) -> str:
    rows = records.studies.sort("batch_size").select("batch_size", "train_steps").rows()
    if len({steps for _, steps in rows}) == 1:
        return f"{rows[0][1]:,} steps" if rows[0][1] else "a time budget"
    return ", ".join(f"{steps:,} steps at {size:,}" if steps else f"a time budget at {size:,}" for size, steps in rows)


def _fixed(values: Mapping[str, float]) -> str | None:
    return ", ".join(f"{name} = {value}" for name, value in values.items()) or None


def _values(values: Iterable[object]) -> str:
    unique = list(dict.fromkeys(one_line(value, 200) for value in values if value is not None))
    more = f" and {len(unique) - 6} more" if len(unique) > 6 else ""
    return ", ".join(unique[:6]) + more


def _counts(values: Iterable[object]) -> str:
    counts = Counter(one_line(value, 60) for value in values if value is not None)
    return ", ".join(f"{name} ({count:,})" for name, count in counts.most_common(8))


def _numbers(values: pl.Series) -> str:
    return ", ".join(f"{value:,}" for value in values)
