"""The text of a report: sentences on a workload's result and trials, and the metadata of its run."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from batchscale.analysis.curve_analysis import Analysis
from batchscale.analysis.sentences import answer_sentences
from batchscale.analysis.units import SizeUnit
from batchscale.errors import one_line
from batchscale.figures.kinds.space import range_text
from batchscale.figures.names import count, metaparameter_label, none_reached
from batchscale.formatting import duration, rounded_text
from batchscale.records.frames import STUDY_COLUMNS, Records, fixed_values, searched_spaces
from batchscale.records.metadata.columns import METADATA
from batchscale.records.model import Status
from batchscale.spec.space import ParameterConfig
from batchscale.spec.workload_name import WorkloadName

MOST_CHARACTERS = 50_000  # of one file; a longer one would make the page unreadable


def result_sentences(answer: Analysis) -> tuple[str, ...]:
    """Return the result with numbers and their intervals, the most important sentence first."""
    reached = answer.curve.drop_nulls("steps").sort("batch_size")
    if reached.is_empty():
        trials = int(answer.curve["trials"].sum() or 0)
        return (
            f"No result yet: {none_reached(trials)} the goal.",
            "Choose a goal that is easier to reach, train longer, or search other metaparameters.",
        )
    if answer.summary is None:
        size, steps = reached["batch_size"][0], reached["steps"][0]
        return (
            f"At batch size {answer.unit.size(size)} the goal takes {steps:,} steps.",
            "One point does not show how training scales: measure more batch sizes.",
        )
    return (*answer_sentences(answer), _gain_sentence(reached, answer.unit))


def status_sentence(records: Records) -> str:
    """State what COMPLETE, INFEASIBLE and INCOMPLETE mean for these trials, and how many were stopped."""
    sentences = []
    complete = records.trials.filter(pl.col("status") == Status.COMPLETE.value)
    if len(complete):
        plans = records.studies.filter("early_stopping", pl.col("train_steps") > 0).select(
            *STUDY_COLUMNS, "train_steps"
        )
        stopped = len(complete.join(plans, on=STUDY_COLUMNS).filter(pl.col("steps") < pl.col("train_steps")))
        through = len(complete) - stopped
        ran = f"{count(through, 'COMPLETE trial')} ran through the budget" if through else ""
        cut = f"{count(stopped, 'COMPLETE trial')} ended before by the stop rule, at the goal or out of the race"
        sentences.append(", ".join(text for text in (ran, cut if stopped else "") if text) + ".")
    statuses = set(records.trials["status"])
    if Status.INFEASIBLE.value in statuses:
        sentences.append("INFEASIBLE trials diverged.")
    if Status.INCOMPLETE.value in statuses:
        sentences.append("INCOMPLETE trials were cut short.")
    return " ".join(sentences)


def about(value: float) -> str:
    """Return a number rounded to two digits.

    >>> about(613.2)
    '610'
    """
    return rounded_text(float(f"{value:.2g}"))


def _gain_sentence(reached: pl.DataFrame, unit: SizeUnit) -> str:
    first, best = reached.row(0, named=True), reached.sort("steps", "batch_size").row(0, named=True)
    if best["batch_size"] == first["batch_size"]:
        smallest = unit.size(first["batch_size"])
        return f"The fewest steps, {best['steps']:,}, were measured at the smallest batch, {smallest}."
    fewer = about(first["steps"] / max(best["steps"], 1))
    examples = about(best["batch_size"] * best["steps"] / max(first["batch_size"] * first["steps"], 1))
    return (
        f"From batch size {unit.size(first['batch_size'])} to {unit.size(best['batch_size'])} the steps fall from "
        f"{first['steps']:,} to {best['steps']:,}, {fewer} times fewer, at {examples} times the {unit.noun}."
    )


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
