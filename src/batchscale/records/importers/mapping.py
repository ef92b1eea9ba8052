"""The meaning of a source's names: which value is the batch size, which metric the goal's, what steps count.

Options decide; what they leave open is guessed from the names and shown. A guess that could as well be another one is
refused: a wrong one would falsify every result.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from batchscale.errors import RecordsError, SpecError, one_line, suggest_names
from batchscale.records.importers.names import (
    SEED_NAMES,
    find_split,
    is_batch_size_name,
    is_own_name,
    is_per_device_name,
    plain_name,
    record_name,
    safe_folder,
    step_unit,
)
from batchscale.records.importers.source import RunSource, SourceRun
from batchscale.spec.durations import Unit
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

_GOAL = re.compile(r"\s*(?P<metric>\S(?:.*?\S)?)\s*(?P<sign>[<>])\s*(?P<value>\S+)\s*")
_WORKLOAD_NAMES = {
    "dataset": ("dataset", "dataset_name", "data_set", "task", "task_name"),
    "model": ("model", "model_name", "arch", "architecture", "network"),
    "optimizer": ("optimizer", "optimizer_name", "optim", "opt"),
}
GROUP_FIELD = "group"


@dataclass(frozen=True)
class MappingOptions:
    """The user's choices; None and empty are guessed."""

    workload: str | None = None
    batch_size: str | None = None
    metric: str | None = None
    goal: str | None = None
    step: str | None = None
    unit: Unit | None = None
    first_epoch: int | None = None
    num_train_examples: int | None = None
    drop_last: bool = False
    group: str | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class NameMapping:
    """The decided names. ``batch_size`` is a value's name or a number; ``guesses`` has a sentence for each guess."""

    workload: str
    batch_size: str | int
    metrics: Mapping[str, str]
    metric: str
    step: str
    unit: Unit
    first_epoch: int
    num_train_examples: int | None
    drop_last: bool
    parameters: tuple[str, ...]
    seed: str | None = None
    goal: Goal | None = None
    guesses: tuple[str, ...] = ()

    def workload_of(self, run: SourceRun) -> WorkloadName | None:
        """Return the workload of a run; None if the run lacks a value that its name needs."""
        values = {**run.values, GROUP_FIELD: run.group}
        missing = [name for name in re.findall(r"\{([^{}]*)\}", self.workload) if values.get(name, "") == ""]
        if missing:
            return None
        text = re.sub(r"\{([^{}]*)\}", lambda match: safe_folder(_value_text(values[match[1]])), self.workload)
        return WorkloadName.parse(text)

    def batch_size_of(self, run: SourceRun) -> int | None:
        """Return the batch size of a run; None if it has none."""
        value = self.batch_size if isinstance(self.batch_size, int) else run.values.get(self.batch_size)
        return int(value) if isinstance(value, int | float) and float(value).is_integer() and value >= 1 else None


@dataclass(frozen=True)
class ColumnSummary:
    """The columns of all runs, and the steps in them: what guesses are based on."""

    columns: tuple[str, ...]
    ranges: Mapping[str, tuple[float, float]]
    consecutive: frozenset[str]
    """The columns that count 0, 1, 2, … or 1, 2, 3, … in every run."""
    whole: frozenset[str]


def summarize_columns(runs: Sequence[SourceRun]) -> ColumnSummary:
    """Read all runs once and return their columns."""
    columns: dict[str, None] = {}
    ranges: dict[str, tuple[float, float]] = {}
    uneven: set[str] = set()
    broken: set[str] = set()
    for run in runs:
        frame = run.read()
        columns |= dict.fromkeys(frame.columns)
        for name in frame.columns:
            if step_unit(name) is None and not name.startswith("_"):
                continue
            steps = frame[name].drop_nulls().drop_nans().unique().sort()
            if not len(steps):
                continue
            low, high = float(steps[0]), float(steps[-1])
            before = ranges.get(name, (low, high))
            ranges[name] = (min(low, before[0]), max(high, before[1]))
            if low > 1 or high - low != len(steps) - 1:
                uneven.add(name)
            if not bool((steps == steps.floor()).all()):
                broken.add(name)
    consecutive = frozenset(name for name in ranges if name not in uneven)
    return ColumnSummary(tuple(columns), ranges, consecutive, frozenset(ranges.keys() - broken))


def map_names(source: RunSource, runs: Sequence[SourceRun], options: MappingOptions) -> NameMapping:
    """Return the meaning of the names in these runs of a source.

    Raises:
        RecordsError: an option names something that is not there, or a guess is ambiguous.
    """
    summary = summarize_columns(runs)
    guesses: list[str] = []
    batch_size = _find_batch_size(runs, options, guesses)
    step, unit, first_epoch = _find_step(source, summary, options, guesses)
    metrics = _name_metrics(summary, step, options)
    metric, goal = _find_metric(source, metrics, options, guesses)
    seed = _find_seed(runs)
    workload = _find_workload(source, runs, options, guesses)
    for name in options.parameters:
        if not any(name in run.values for run in runs):
            raise RecordsError(_unknown("--parameter", name, _value_names(runs)))
    mapping = NameMapping(
        workload=workload,
        batch_size=batch_size,
        metrics=metrics,
        metric=metric,
        step=step,
        unit=unit,
        first_epoch=first_epoch,
        num_train_examples=options.num_train_examples,
        drop_last=options.drop_last,
        parameters=options.parameters,
        seed=seed,
        goal=goal,
        guesses=tuple(guesses),
    )
    _check_workload(mapping, runs)
    _check_groups(mapping, runs)
    return mapping


# --- batch size ----------------------------------------------------------------------------------------------------


def _find_batch_size(runs: Sequence[SourceRun], options: MappingOptions, guesses: list[str]) -> str | int:
    names = _value_names(runs)
    if options.batch_size is not None:
        if options.batch_size.isdecimal() and int(options.batch_size) >= 1:
            return int(options.batch_size)
        if options.batch_size not in names:
            raise RecordsError(_unknown("--batch-size", options.batch_size, names) + " A number stands for all runs.")
        return options.batch_size
    candidates = [name for name in names if is_batch_size_name(name)]
    if len(candidates) > 1:
        same = [run for run in runs if len({run.values.get(name) for name in candidates} - {None}) > 1]
        if same:
            raise RecordsError(
                f"--batch-size is required: several values may be the batch size: {', '.join(candidates)}. They "
                f"differ, for example in the run {one_line(same[0].run_id)}. Name the one over all devices."
            )
    if candidates:
        guesses.append(f"batch size: {candidates[0]}")
        return candidates[0]
    partial = [name for name in names if is_per_device_name(name)]
    advice = f" {partial[0]} is a part of it: the batch of one device." if partial else ""
    raise RecordsError(
        f"--batch-size is required: no value has the name of a batch size.{advice} Found "
        f"{one_line(', '.join(names) or 'no values', 300)}. Pass the value's name, a number that holds for all runs, "
        "or --name-pattern with a group (?P<batch_size>[0-9]+) if it stands in the runs' names."
    )


# --- steps ---------------------------------------------------------------------------------------------------------


def _find_step(
    source: RunSource, summary: ColumnSummary, options: MappingOptions, guesses: list[str]
) -> tuple[str, Unit, int]:
    named = [name for name in summary.columns if step_unit(name) is not None]
    own = source.step_column
    if options.step is not None:
        if options.step not in summary.columns:
            raise RecordsError(_unknown("--step", options.step, summary.columns))
        column = options.step
    else:
        order = [Unit.STEPS, Unit.EXAMPLES, Unit.EPOCHS]
        ranked = sorted(
            (name for name in named if name != own), key=lambda name: order.index(step_unit(name) or Unit.STEPS)
        )
        others = [name for name in ranked if step_unit(name) is not Unit.EPOCHS]
        column = others[0] if others else own if own in summary.columns and own is not None else next(iter(ranked), "")
        if not column:
            raise RecordsError(
                f"--step is required: no column has the name of a step or an epoch. Found "
                f"{one_line(', '.join(summary.columns), 300)}."
            )
        guesses.append(f"step: {column}")
    unit = options.unit or _guess_unit(source, summary, column, named, guesses)
    if unit is Unit.EPOCHS and options.num_train_examples is None:
        raise RecordsError(
            f"--num-train-examples is required: '{column}' counts epochs, and steps are epochs × examples / batch "
            "size. Pass the size of the training set."
        )
    low = summary.ranges.get(column, (0.0, 0.0))
    if low == (0.0, 0.0) and column in summary.ranges:
        raise RecordsError(
            f"Steps must grow during training: every value of '{column}' is 0, so the runs were logged without steps. "
            "Name another column with --step."
        )
    first = options.first_epoch
    if unit is Unit.EPOCHS and first is None:
        first = 0 if low[0] == 0 and column in summary.whole else 1
        if not first:
            guesses.append(
                "first epoch: 0, so epoch 0 is measured after one epoch (--first-epoch 1 if before training)"
            )
    return column, unit, 1 if first is None else first


def _guess_unit(
    source: RunSource, summary: ColumnSummary, column: str, named: Sequence[str], guesses: list[str]
) -> Unit:
    """Return the unit of a column by its name, or by its numbers where the name is the tool's and says nothing."""
    if column != source.step_column:
        unit = step_unit(column) or Unit.STEPS
        guesses.append(f"unit: {unit}, by the name '{column}'")
        return unit
    if source.unit is not None:
        return source.unit
    epochs = [name for name in named if step_unit(name) is Unit.EPOCHS]
    if column not in summary.consecutive:
        guesses.append("unit: steps, because they have gaps")
        return Unit.STEPS
    if epochs and summary.ranges.get(epochs[0], (0, 0))[1] < summary.ranges[column][1] - 1:
        guesses.append(f"unit: steps, because '{epochs[0]}' grows more slowly")
        return Unit.STEPS
    low, high = summary.ranges[column]
    raise RecordsError(
        f"--unit is required: '{column}' counts {low:g}, {low + 1:g}, … {high:g} in every run, which may be steps or "
        "epochs. Pass --unit steps, or --unit epochs with --num-train-examples."
    )


# --- metrics -------------------------------------------------------------------------------------------------------


def _name_metrics(summary: ColumnSummary, step: str, options: MappingOptions) -> dict[str, str]:
    """Return the metrics' names in records by their names in the source."""
    names = [name for name in summary.columns if name != step and step_unit(name) is None and not is_own_name(name)]
    default = "train" if any(find_split(name) in ("val", "test") for name in names) else "val"
    metrics: dict[str, str] = {}
    for name, new in options.rename.items():
        if name not in names:
            raise RecordsError(_unknown("--rename", name, names))
        try:
            Goal.parse(f"{new} < 0")
        except SpecError:
            raise RecordsError(
                f"--rename must give a metric a name such as val/error: a split (train, val or test), '/', and a name "
                f"of letters, digits and _. Found '{one_line(new)}'."
            ) from None
        metrics[name] = new
    for name in names:
        new_name = record_name(name, default)
        if name not in metrics and new_name is not None and new_name not in metrics.values():
            metrics[name] = new_name
    if not metrics:
        raise RecordsError(
            f"A source must have a metric beside its steps. Found the columns {', '.join(summary.columns)}."
        )
    return metrics


def _find_metric(
    source: RunSource, metrics: Mapping[str, str], options: MappingOptions, guesses: list[str]
) -> tuple[str, Goal | None]:
    by_name = {**{new: new for new in metrics.values()}, **metrics}
    if options.goal is not None:
        match = _GOAL.fullmatch(options.goal)
        if match is None:
            raise RecordsError(f"--goal must be a metric, '<' or '>', and a number. Found '{one_line(options.goal)}'.")
        if match["metric"] not in by_name:
            raise RecordsError(_unknown("--goal", match["metric"], by_name))
        goal = Goal.parse(f"{by_name[match['metric']]} {match['sign']} {match['value']}")
        if source.maximize is not None and source.maximize is not goal.maximize:
            guesses.append(f"notice: the source {'maximised' if source.maximize else 'minimised'} its objective")
        return goal.metric, goal
    if options.metric is not None:
        if options.metric not in by_name:
            raise RecordsError(_unknown("--metric", options.metric, by_name))
        return by_name[options.metric], None
    held_out = [new for new in metrics.values() if not new.startswith("train/")]
    val = [new for new in held_out if new.startswith("val/")]
    candidates = list(metrics.values()) if len(metrics) == 1 else val or held_out
    if len(candidates) != 1:
        raise RecordsError(
            "--metric or --goal is required: several metrics may be the goal's. Found "
            f"{one_line(', '.join(candidates or metrics.values()), 300)}."
        )
    guesses.append(f"metric: {candidates[0]}")
    return candidates[0], None


# --- the rest ------------------------------------------------------------------------------------------------------


def _find_seed(runs: Sequence[SourceRun]) -> str | None:
    return next((name for name in _value_names(runs) if plain_name(name) in SEED_NAMES), None)


def _find_workload(source: RunSource, runs: Sequence[SourceRun], options: MappingOptions, guesses: list[str]) -> str:
    if options.workload is not None:
        fields = re.findall(r"\{([^{}]*)\}", options.workload)
        names = [*_value_names(runs), GROUP_FIELD]
        for name in fields:
            if name not in names:
                raise RecordsError(_unknown("--workload", name, names))
        WorkloadName.parse(re.sub(r"\{[^{}]*\}", "x", options.workload))
        return options.workload
    names = _value_names(runs)
    parts = []
    for part, candidates in _WORKLOAD_NAMES.items():
        matches = [name for name in names if plain_name(name) in candidates and _is_text(runs, name)]
        default = (safe_folder(source.path.absolute().stem) or "imported") if part == "dataset" else part
        parts.append(f"{{{matches[0]}}}" if matches else default)
    guesses.append(f"workload: {'/'.join(parts)}")
    return "/".join(parts)


def _is_text(runs: Sequence[SourceRun], name: str) -> bool:
    return all(isinstance(run.values.get(name), str) and safe_folder(str(run.values[name])) for run in runs)


def _check_workload(mapping: NameMapping, runs: Sequence[SourceRun]) -> None:
    try:
        for run in runs:
            mapping.workload_of(run)
    except SpecError as error:
        raise RecordsError(f"--workload must give every run a name of folders. {error}") from None


def _check_groups(mapping: NameMapping, runs: Sequence[SourceRun]) -> None:
    """Refuse to mix runs of one workload and batch size that the source holds apart."""
    groups: dict[tuple[WorkloadName | None, int | None], str] = {}
    for run in runs:
        key = (mapping.workload_of(run), mapping.batch_size_of(run))
        other = groups.setdefault(key, run.group)
        if key[1] is not None and other != run.group:
            raise RecordsError(
                f"A study must be one search: both '{one_line(other)}' and '{one_line(run.group)}' have runs at batch "
                f"size {key[1]}. Import one of them with --group, or tell them apart in the name: --workload "
                "{group}/model/optimizer."
            )


def select_group(source: RunSource, group: str | None) -> RunSource:
    """Return the source with the runs of one group only, or unchanged."""
    if group is None:
        return source
    groups = sorted({run.group for run in source.runs})
    if group not in groups:
        raise RecordsError(_unknown("--group", group, groups))
    return replace(source, runs=[run for run in source.runs if run.group == group])


def _value_names(runs: Sequence[SourceRun]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.values))


def _unknown(option: str, name: str, names: object) -> str:
    valid = [str(each) for each in names]  # type: ignore[attr-defined]
    return f"{option} must name something in the source: no '{one_line(name)}'; {suggest_names(name, valid)}"


def _value_text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"
