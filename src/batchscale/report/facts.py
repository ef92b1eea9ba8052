"""How an experiment was run: what its records say about spaces, budgets, versions, seeds, hardware and time."""

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


@dataclass(frozen=True)
class RunFacts:
    """Rows of words for the table of how a workload was run, and how its trials ended."""

    rows: tuple[tuple[str, str], ...]
    statuses: Mapping[str, int]


def gather_facts(records: Records, workload: WorkloadName) -> RunFacts:
    """What the records of one workload say about how they were made."""
    chosen = records.workload(workload)
    studies, trials = (frame[METADATA].struct.unnest() for frame in (chosen.studies, chosen.trials))
    seconds = float(trials["total_s"].sum()) if trials["total_s"].count() else None
    statuses = {status.value: int((chosen.trials["status"] == status.value).sum()) for status in Status}
    rows = [
        ("data set", workload.dataset),
        ("model", workload.model),
        ("optimizer", workload.optimizer),
        ("batch sizes", _numbers(chosen.studies["batch_size"].sort())),
        *_space_rows(chosen),
        ("step budget", _budgets(chosen)),
        ("stop rule", _values(studies["stop_rule"])),
        ("trials ended by", _counts(trials["stop_reason"])),
        ("fixed values", _values(map(_fixed, fixed_values(chosen).values()))),
        ("code version", _values(studies["code_version"])),
        ("seeds of the studies", _values(studies["seed"])),
        ("experiment hash", _values(studies["spec_hash"])),
        ("hardware", _values(trials["device_kind"])),
        ("time in trials", "not recorded" if seconds is None else duration(seconds)),
    ]
    return RunFacts(tuple((name, text) for name, text in rows if text), statuses)


def _space_rows(records: Records) -> list[tuple[str, str]]:
    """The range of every tuned metaparameter; ranges that differ between batch sizes are told apart."""
    ranges: dict[str, dict[str, list[int]]] = {}
    for (*_, size), spaces in sorted(searched_spaces(records).items()):
        for config in spaces[-1]:
            ranges.setdefault(config.name, {}).setdefault(_range(config), []).append(size)
    rows = []
    for name, texts in ranges.items():
        shown = (
            list(texts)
            if len(texts) == 1
            else [f"{text} at {_numbers(pl.Series(sizes))}" for text, sizes in texts.items()]
        )
        more = [f"and {len(shown) - 6} more ranges"] if len(shown) > 6 else []
        rows.append((f"range of {metaparameter_label(name)}", "; ".join([*shown[:6], *more])))
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
    known = list(dict.fromkeys(one_line(value, 200) for value in values if value is not None))
    more = f" and {len(known) - 6} more" if len(known) > 6 else ""
    return ", ".join(known[:6]) + more


def _counts(values: Iterable[object]) -> str:
    counts = Counter(one_line(value, 60) for value in values if value is not None)
    return ", ".join(f"{name} ({count:,})" for name, count in counts.most_common(8))


def _numbers(values: pl.Series) -> str:
    return ", ".join(f"{value:,}" for value in values)
