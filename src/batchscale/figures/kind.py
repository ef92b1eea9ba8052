"""The declaration of a kind of chart, and the request for one."""

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
    """The records and options of a figure.

    Attributes:
        records: Only of the workloads and batch sizes to draw.
        goals: One; several for a family of goals.
        metaparameter: The one whose best values are drawn, or whose values split the studies; None: the kind's default.
        normalise_at: The batch size whose steps others are divided by.
        budgets: The budgets within which trials count, or whose best values are drawn.
        first_trials: Count only this many of each study's first COMPLETE trials; None: all.
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
    """A kind of chart: its description, records to frame, frame to chart, and its default look."""

    shows: str
    data: Callable[[FigureRequest], pl.DataFrame]
    chart: Callable[[pl.DataFrame, Look], Chart]
    look: Look

    def plot(self, frame: pl.DataFrame, theme: Theme) -> Chart:
        """Draw the chart of a frame made by ``data``, in the colours of a theme."""
        return self.chart(frame, replace(self.look, theme=theme))
