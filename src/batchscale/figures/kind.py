"""What a kind of chart declares, and what it is asked to draw."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from batchscale.figures.layout import Chart, Look
from batchscale.figures.theme import Theme
from batchscale.records.frames import Records
from batchscale.spec.durations import Budget
from batchscale.spec.goal import Goal


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
        machines: The file of machines and prices, for plans.
        step_times: Files of step times, for plans; none: those that the trials recorded.
    """

    records: Records
    goals: tuple[Goal, ...]
    metaparameter: str | None = None
    normalise_at: int | None = None
    budgets: tuple[Budget, ...] = ()
    first_trials: int | None = None
    num_train_examples: int | None = None
    machines: Path | None = None
    step_times: tuple[Path, ...] = ()

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
    """A kind of chart: one sentence on what it shows, records to frame, frame to chart, and its usual look."""

    shows: str
    data: Callable[[FigureRequest], pl.DataFrame]
    chart: Callable[[pl.DataFrame, Look], Chart]
    look: Look

    def plot(self, frame: pl.DataFrame, theme: Theme) -> Chart:
        """The chart of a frame made by ``data``, in the colours of a theme."""
        return self.chart(frame, replace(self.look, theme=theme))
