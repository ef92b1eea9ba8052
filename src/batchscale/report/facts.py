"""How an experiment was run: what its records say about spaces, budgets, versions, seeds, hardware and time."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from batchscale.errors import BatchscaleError, one_line
from batchscale.figures import metaparameter_label, range_text
from batchscale.records.frames import Records
from batchscale.records.model import Status
from batchscale.records.own_facts import own_facts
from batchscale.spec import ParameterConfig, SearchSpace, WorkloadName


@dataclass(frozen=True)
class RunFacts:
    """Rows of words for the table of how a workload was run, and how its trials ended."""

    rows: tuple[tuple[str, str], ...]
    statuses: Mapping[str, int]


def gather_facts(records: Records, workload: WorkloadName) -> RunFacts:
    """What the records of one workload say about how they were made."""
    chosen = records.workload(workload)
    studies = [own_facts(extra) for extra in chosen.studies["extra"]]
    trials = [own_facts(extra) for extra in chosen.trials["extra"]]
    seconds = _seconds(trials)
    statuses = {status.value: int((chosen.trials["status"] == status.value).sum()) for status in Status}
    rows = [
        ("data set", workload.dataset),
        ("model", workload.model),
        ("optimizer", workload.optimizer),
        ("batch sizes", _numbers(chosen.studies["batch_size"].sort())),
        *_space_rows(chosen),
        ("step budget", _budgets(chosen)),
        ("stop rule", _values(facts.get("stop") for facts in studies)),
        ("trials ended by", _counts(facts.get("stop_reason") for facts in trials)),
        ("fixed values", _values(_fixed(facts.get("fixed")) for facts in studies)),
        ("code version", _values(facts.get("code_version") for facts in studies)),
        ("seeds of the studies", _values(facts.get("seed") for facts in studies)),
        ("experiment hash", _values(facts.get("spec_hash") for facts in studies)),
        ("hardware", _values(facts.get("hardware") for facts in trials)),
        ("time in trials", "not recorded" if seconds is None else _duration(seconds)),
    ]
    return RunFacts(tuple((name, text) for name, text in rows if text), statuses)


def _space_rows(records: Records) -> list[tuple[str, str]]:
    """The range of every tuned metaparameter; ranges that differ between batch sizes are told apart."""
    ranges: dict[str, dict[str, list[int]]] = {}
    for size, configs in records.studies.sort("batch_size").select("batch_size", "parameter_configs").iter_rows():
        try:
            space = SearchSpace.from_json(json.loads(configs))
        except (ValueError, BatchscaleError):
            continue
        for config in space:
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


def _seconds(trials: Iterable[Mapping[str, Any]]) -> float | None:
    timings = [facts.get("timing") for facts in trials]
    values = [timing.get("seconds") for timing in timings if isinstance(timing, dict)]
    known = [float(value) for value in values if isinstance(value, int | float)]
    return sum(known) if known else None


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _fixed(values: object) -> str | None:
    if not isinstance(values, dict) or not values:
        return None
    return ", ".join(f"{name} = {value}" for name, value in sorted(values.items()))


def _values(values: Iterable[object]) -> str:
    known = list(dict.fromkeys(one_line(value, 200) for value in values if value is not None))
    more = f" and {len(known) - 6} more" if len(known) > 6 else ""
    return ", ".join(known[:6]) + more


def _counts(values: Iterable[object]) -> str:
    counts = Counter(one_line(value, 60) for value in values if value is not None)
    return ", ".join(f"{name} ({count:,})" for name, count in counts.most_common(8))


def _numbers(values: pl.Series) -> str:
    return ", ".join(f"{value:,}" for value in values)
