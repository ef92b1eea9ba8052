"""The 24 figures of the paper as recipes: records to frame, frame to chart.

Sizes of training sets are the paper's; the workloads, goals and budgets are in ``paper_curves`` and ``paper_trials``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from batchscale.analysis.regimes import Baseline
from batchscale.errors import UnknownNameError, one_line, suggest_names
from batchscale.figures import paper_curves, paper_trials
from batchscale.figures.kinds.budget import budget_frame, plot_budget
from batchscale.figures.kinds.curves import plot_curves
from batchscale.figures.kinds.effective_learning_rate import effective_frame, plot_effective
from batchscale.figures.kinds.label_smoothing import plot_split, split_frame
from batchscale.figures.kinds.map import map_frame, plot_map
from batchscale.figures.kinds.metaparameter import metaparameter_frame, plot_metaparameter
from batchscale.figures.kinds.space import plot_space, space_frame
from batchscale.figures.kinds.training import plot_training, training_frame
from batchscale.figures.layout import NORMAL, SMALL, Chart, Look, PanelSize
from batchscale.figures.paper_trials import FIXED_MOMENTUM, zoomed_limits
from batchscale.figures.series import CurvePanel, series_frame
from batchscale.figures.theme import Theme
from batchscale.records.frames import Records

PREFIX = "paper-"


@dataclass(frozen=True)
class PaperFigure:
    """One figure of the paper: its description, its data function and its chart function."""

    number: int
    title: str
    data: Callable[[Records], pl.DataFrame]
    chart: Callable[[pl.DataFrame, Look], Chart]
    columns: int = 3
    size: PanelSize = NORMAL

    @property
    def name(self) -> str:
        """The name on the command line: ``paper-1``."""
        return f"{PREFIX}{self.number}"

    def draw(self, frame: pl.DataFrame, theme: Theme) -> Chart:
        """Return the chart of a frame made by ``data``."""
        return self.chart(frame, Look(theme, f"Figure {self.number}. {self.title}", self.columns, self.size))


def find_paper_figure(name: str) -> PaperFigure:
    """Return the recipe called ``paper-N``."""
    if name not in PAPER_FIGURES:
        raise UnknownNameError(
            f"The paper has figures 1 to 24. Found '{one_line(name)}'; {suggest_names(name, PAPER_FIGURES)}"
        )
    return PAPER_FIGURES[name]


def _steps(panels: Callable[[], list[CurvePanel]]) -> Callable[[Records], pl.DataFrame]:
    """Return the curves of the panels; as in the paper, perfect scaling goes through the first point."""
    return lambda records: series_frame(records, panels(), baseline=Baseline.FIRST)


def _goals(frame: pl.DataFrame, look: Look) -> Chart:
    return plot_curves(frame, look, ordered=True)


def _best(metaparameter: str) -> Callable[[Records], pl.DataFrame]:
    return lambda records: metaparameter_frame(records, paper_curves.figure_1(), metaparameter, FIXED_MOMENTUM)


def _zoomed(frame: pl.DataFrame, look: Look) -> Chart:
    return plot_budget(frame, look, limits=zoomed_limits(frame))


def _one_of_figure_11(letter: str) -> Callable[[Records], pl.DataFrame]:
    return lambda records: budget_frame(
        records, [panel for panel in paper_trials.figure_11() if panel.title.startswith(f"({letter})")]
    )


_FIGURES = (
    PaperFigure(
        1,
        "Steps to result against batch size: the same form for all workloads",
        _steps(paper_curves.figure_1),
        plot_curves,
    ),
    PaperFigure(2, "Nearby goals give curves of a similar form", _steps(paper_curves.figure_2), _goals),
    PaperFigure(
        3, "Some models can exploit much larger batch sizes than others", _steps(paper_curves.figure_3), plot_curves
    ),
    PaperFigure(
        4, "Momentum extends perfect scaling to larger batch sizes", _steps(paper_curves.figure_4), plot_curves
    ),
    PaperFigure(
        5, "The data set can influence the maximum useful batch size", _steps(paper_curves.figure_5), plot_curves
    ),
    PaperFigure(6, "The effect of data set size", _steps(paper_curves.figure_6), plot_curves),
    PaperFigure(
        7,
        "Label smoothing: ResNet-50 on ImageNet",
        lambda r: split_frame(r, paper_trials.figure_7()),
        plot_split,
        columns=2,
    ),
    PaperFigure(
        8,
        "Best effective learning rates beside the scaling heuristics",
        _best("effective_learning_rate"),
        plot_metaparameter,
    ),
    PaperFigure(
        9,
        "Where Transformer on LM1B trains rapidly, in epochs (a) and in steps (b)",
        lambda r: map_frame(r, paper_trials.figure_9()),
        plot_map,
        size=SMALL,
    ),
    PaperFigure(
        10,
        "Smaller models have larger stable learning rates: Transformer on LM1B",
        lambda r: map_frame(r, paper_trials.figure_10()),
        plot_map,
        columns=2,
        size=SMALL,
    ),
    PaperFigure(
        11,
        "Best validation error under budgets of steps and of epochs",
        lambda r: budget_frame(r, paper_trials.figure_11()),
        plot_budget,
        columns=2,
    ),
    PaperFigure(12, "Steps to a training error and to a validation error", _steps(paper_curves.figure_12), plot_curves),
    PaperFigure(
        13,
        "Search spaces of Transformer on LM1B",
        lambda r: space_frame(r, paper_trials.figure_13()),
        plot_space,
        columns=2,
    ),
    PaperFigure(
        14,
        "Search spaces of ResNet-50 on ImageNet",
        lambda r: space_frame(r, paper_trials.figure_14()),
        plot_space,
        columns=2,
    ),
    PaperFigure(
        15, "Figure 3 without normalisation", _steps(lambda: paper_curves.figure_3(normalised=False)), plot_curves
    ),
    PaperFigure(
        16, "Figure 5 without normalisation", _steps(lambda: paper_curves.figure_5(normalised=False)), plot_curves
    ),
    PaperFigure(
        17, "Figure 6 without normalisation", _steps(lambda: paper_curves.figure_6(normalised=False)), plot_curves
    ),
    PaperFigure(
        18,
        "The best trials with and without label smoothing: ResNet-50 on ImageNet, batch size 65,536",
        lambda r: training_frame(r, paper_trials.figure_18(r)),
        plot_training,
        columns=2,
    ),
    PaperFigure(
        19,
        "Label smoothing: Simple CNN on MNIST and Fashion MNIST",
        lambda r: split_frame(r, paper_trials.figure_19()),
        plot_split,
        columns=2,
    ),
    PaperFigure(
        20,
        "Validation error against effective learning rate",
        lambda r: effective_frame(r, paper_trials.figure_20()),
        plot_effective,
        size=SMALL,
    ),
    PaperFigure(21, "Best learning rates beside the scaling heuristics", _best("learning_rate"), plot_metaparameter),
    PaperFigure(22, "Best momentum has no consistent relation to batch size", _best("momentum"), plot_metaparameter),
    PaperFigure(23, "Figure 11a, zoomed: Simple CNN on MNIST", _one_of_figure_11("a"), _zoomed, 2, PanelSize(340, 300)),
    PaperFigure(
        24, "Figure 11b, zoomed: Simple CNN on Fashion MNIST", _one_of_figure_11("b"), _zoomed, 2, PanelSize(340, 300)
    ),
)
PAPER_FIGURES: Mapping[str, PaperFigure] = {figure.name: figure for figure in _FIGURES}
