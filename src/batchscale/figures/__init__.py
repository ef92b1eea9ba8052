"""Figures: a chart is a data function (records to frame) and a chart function (frame to Altair chart).

The public names are loaded on first use. Inside batchscale, import from the modules.
"""

from typing import TYPE_CHECKING

from batchscale.figures.altair_loader import keep_altair_docstrings
from batchscale.lazy_imports import load_lazily

if TYPE_CHECKING:
    from batchscale.figures.export import chart_spec as chart_spec
    from batchscale.figures.export import write_chart as write_chart
    from batchscale.figures.kind import FigureKind as FigureKind
    from batchscale.figures.kinds.best_of_n import plot_best_of as plot_best_of
    from batchscale.figures.kinds.budget import plot_budget as plot_budget
    from batchscale.figures.kinds.curve import curve_frame as curve_frame
    from batchscale.figures.kinds.curve import plot_curve as plot_curve
    from batchscale.figures.kinds.curves import plot_curves as plot_curves
    from batchscale.figures.kinds.effective_learning_rate import plot_effective as plot_effective
    from batchscale.figures.kinds.map import plot_map as plot_map
    from batchscale.figures.kinds.metaparameter import plot_metaparameter as plot_metaparameter
    from batchscale.figures.kinds.plan import plot_plan as plot_plan
    from batchscale.figures.kinds.space import plot_space as plot_space
    from batchscale.figures.kinds.step_time import plot_step_time as plot_step_time
    from batchscale.figures.kinds.training import plot_training as plot_training
    from batchscale.figures.layout import Drawn as Drawn
    from batchscale.figures.layout import Look as Look
    from batchscale.figures.layout import draw_panels as draw_panels
    from batchscale.figures.series import CurvePanel as CurvePanel
    from batchscale.figures.series import Series as Series
    from batchscale.figures.series import points_frame as points_frame
    from batchscale.figures.theme import DARK as DARK
    from batchscale.figures.theme import LIGHT as LIGHT
    from batchscale.figures.theme import Theme as Theme

_PUBLIC = {
    "CurvePanel": "series",
    "DARK": "theme",
    "Drawn": "layout",
    "FigureKind": "kind",
    "LIGHT": "theme",
    "Look": "layout",
    "Series": "series",
    "Theme": "theme",
    "chart_spec": "export",
    "curve_frame": "kinds.curve",
    "draw_panels": "layout",
    "plot_best_of": "kinds.best_of_n",
    "plot_budget": "kinds.budget",
    "plot_curve": "kinds.curve",
    "plot_curves": "kinds.curves",
    "plot_effective": "kinds.effective_learning_rate",
    "plot_map": "kinds.map",
    "plot_metaparameter": "kinds.metaparameter",
    "plot_plan": "kinds.plan",
    "plot_space": "kinds.space",
    "plot_step_time": "kinds.step_time",
    "plot_training": "kinds.training",
    "points_frame": "series",
    "write_chart": "export",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = load_lazily(__name__, _PUBLIC)

keep_altair_docstrings()  # before any module of the package imports Altair
