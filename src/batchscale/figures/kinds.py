"""The kinds of chart that can be made from any records, by name: what each needs, its data and its chart function."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from batchscale.errors import SpecError, UnknownNameError, one_line, suggest_names
from batchscale.figures.best_of import best_of_frame, plot_best_of, plot_expected_steps
from batchscale.figures.budget import budget_frame, budget_panels, default_budgets, plot_budget
from batchscale.figures.curve import curve_frame, plot_curve
from batchscale.figures.curve_frame import curves_frame, joint_panel, workload_panels
from batchscale.figures.curves import plot_curves
from batchscale.figures.effective import effective_frame, effective_panels, plot_effective
from batchscale.figures.layout import Chart, PanelSize
from batchscale.figures.metaparameter import EFFECTIVE, metaparameter_frame, plot_metaparameter
from batchscale.figures.space import SPACE_SCHEMA, plot_space, space_frame, space_questions
from batchscale.figures.split import plot_split, split_frame, split_panels
from batchscale.figures.theme import Theme
from batchscale.figures.training import plot_training, training_frame, training_panels
from batchscale.figures.trial_map import map_frame, plot_map, study_panels
from batchscale.records.frames import Records
from batchscale.spec import Budget, Goal, Unit


@dataclass(frozen=True)
class FigureRequest:
    """What is drawn from which records.

    Attributes:
        records: Already narrowed to the workloads and batch sizes wanted.
        goals: One; several for a family of goals.
        metaparameter: Whose best values are drawn, or whose values split the studies; None: the kind's own choice.
        normalise_at: The batch size whose steps others are divided by.
        budgets: Within which trials count, or whose best values are drawn.
        first_trials: How many of each study's first COMPLETE trials count; None: all.
        num_train_examples: Size of the training set, for budgets in epochs.
    """

    records: Records
    goals: tuple[Goal, ...]
    metaparameter: str | None = None
    normalise_at: int | None = None
    budgets: tuple[Budget, ...] = ()
    first_trials: int | None = None
    num_train_examples: int | None = None

    @property
    def goal(self) -> Goal:
        """The goal, where there is one."""
        return self.goals[0]

    @property
    def counted(self) -> Records:
        """The records with only the trials that count."""
        return self.records if self.first_trials is None else self.records.first_trials(self.first_trials)


@dataclass(frozen=True)
class FigureKind:
    """A kind of chart: one sentence on what it shows, records to frame, frame to chart."""

    name: str
    shows: str
    data: Callable[[FigureRequest], pl.DataFrame]
    plot: Callable[[pl.DataFrame, Theme], Chart]


def find_kind(name: str, others: Sequence[str] = ()) -> FigureKind:
    """The kind of this name; ``others`` are further names that would have been valid."""
    if name not in KINDS:
        raise UnknownNameError(f"No figure is called '{one_line(name)}'; {suggest_names(name, [*KINDS, *others])}")
    return KINDS[name]


def _curves(request: FigureRequest) -> pl.DataFrame:
    panel = joint_panel(
        request.records, request.goal, normalise_at=request.normalise_at, first_trials=request.first_trials
    )
    return curves_frame(request.records, [panel])


def _plot_curves(frame: pl.DataFrame, theme: Theme) -> Chart:
    normalised = bool((frame["value"] != frame["steps"]).any())
    return plot_curves(frame, theme=theme, normalised=normalised, size=PanelSize(460, 340))


def _goals(request: FigureRequest) -> pl.DataFrame:
    ordered = sorted(request.goals, key=lambda goal: goal.value)
    return curves_frame(request.records, workload_panels(request.records, ordered, first_trials=request.first_trials))


def _metaparameter(request: FigureRequest) -> pl.DataFrame:
    panels = workload_panels(request.records, [request.goal], first_trials=request.first_trials)
    return metaparameter_frame(request.records, panels, request.metaparameter or EFFECTIVE)


def _map(request: FigureRequest) -> pl.DataFrame:
    if len(request.budgets) > 1:
        raise SpecError(
            f"A map is drawn within one budget. Found {len(request.budgets)}; give one of --steps, --epochs."
        )
    budget = request.budgets[0] if request.budgets else None
    panels = study_panels(request.records, request.goal, budget)
    return map_frame(request.records, panels, request.num_train_examples)


def _space(request: FigureRequest) -> pl.DataFrame:
    questions = list(space_questions(request.records, request.goal, request.first_trials))
    frames = [space_frame(request.records, question) for question in questions]
    if len(frames) > 1:
        frames = [
            frame.with_columns((pl.lit(f"{question.workload}: ") + pl.col("panel")).alias("panel"))
            for frame, question in zip(frames, questions, strict=True)
        ]
    return pl.concat(frames) if frames else pl.DataFrame(schema=SPACE_SCHEMA)


def _budget(request: FigureRequest) -> pl.DataFrame:
    by_unit: dict[Unit, tuple[Budget, ...]] = {}
    for budget in request.budgets:
        by_unit[budget.unit] = (*by_unit.get(budget.unit, ()), budget)
    if not by_unit:
        by_unit[Unit.STEPS] = default_budgets(request.counted, Unit.STEPS)
        if request.num_train_examples:
            by_unit[Unit.EPOCHS] = default_budgets(request.counted, Unit.EPOCHS, request.num_train_examples)
    panels = budget_panels(request.counted, request.goal.metric, by_unit, maximize=request.goal.maximize)
    return budget_frame(request.counted, panels, request.num_train_examples)


def _split(request: FigureRequest) -> pl.DataFrame:
    by = request.metaparameter or "label_smoothing"
    return split_frame(request.records, split_panels(request.records, request.goal, by, request.first_trials))


_ALL = (
    FigureKind(
        "curve",
        "steps to result against batch size, with regimes, intervals and doubtful points",
        lambda request: curve_frame(request.counted, request.goal),
        lambda frame, theme: plot_curve(frame, theme=theme),
    ),
    FigureKind("curves", "the curves of several workloads in one panel, plain or normalised", _curves, _plot_curves),
    FigureKind(
        "goals",
        "a family of curves, one for every --goal",
        _goals,
        lambda frame, theme: plot_curves(frame, theme=theme, ordered=True),
    ),
    FigureKind(
        "metaparameter",
        "the best value of --metaparameter against batch size, beside the scaling heuristics",
        _metaparameter,
        lambda frame, theme: plot_metaparameter(frame, theme=theme),
    ),
    FigureKind(
        "map",
        "trials over learning rate and momentum: reached the goal, did not, diverged",
        _map,
        lambda frame, theme: plot_map(frame, theme=theme),
    ),
    FigureKind(
        "space",
        "where in their search ranges the trials lie that reached the goal",
        _space,
        lambda frame, theme: plot_space(frame, theme=theme),
    ),
    FigureKind(
        "budget",
        "the best value of the goal's metric under budgets of --steps or --epochs",
        _budget,
        lambda frame, theme: plot_budget(frame, theme=theme),
    ),
    FigureKind(
        "label-smoothing",
        "best value and steps to result, split by the values of --metaparameter (label smoothing)",
        _split,
        lambda frame, theme: plot_split(frame, theme=theme),
    ),
    FigureKind(
        "training",
        "the goal's metric against steps: all trials faint, the best one bold",
        lambda request: training_frame(request.counted, training_panels(request.counted, request.goal)),
        lambda frame, theme: plot_training(frame, theme=theme),
    ),
    FigureKind(
        "effective-learning-rate",
        "each trial's best value against its effective learning rate",
        lambda request: effective_frame(request.counted, effective_panels(request.counted, request.goal)),
        lambda frame, theme: plot_effective(frame, theme=theme),
    ),
    FigureKind(
        "best-of-n",
        "steps to result had only n of a study's trials been run, with quantiles",
        lambda request: best_of_frame(request.counted, request.goal, per_study=True),
        lambda frame, theme: plot_best_of(frame, theme=theme),
    ),
    FigureKind(
        "expected-steps",
        "median steps to result against the number of trials, for every batch size",
        lambda request: best_of_frame(request.counted, request.goal, per_study=False),
        lambda frame, theme: plot_expected_steps(frame, theme=theme),
    ),
)
KINDS: Mapping[str, FigureKind] = {kind.name: kind for kind in _ALL}
