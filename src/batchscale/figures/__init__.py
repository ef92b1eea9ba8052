"""Figures: a chart is a data function (records to frame) and a chart function (frame to Altair chart).

The names that other packages use stand here and are loaded when first used.
"""

from typing import TYPE_CHECKING

from batchscale.doors import lazy_names

if TYPE_CHECKING:
    from batchscale.figures.axes import log_axis as log_axis
    from batchscale.figures.axes import log_range as log_range
    from batchscale.figures.axes import log_scale as log_scale
    from batchscale.figures.axes import size_axis as size_axis
    from batchscale.figures.default_goal import common_goal as common_goal
    from batchscale.figures.default_goal import find_goal as find_goal
    from batchscale.figures.default_goal import published_goal as published_goal
    from batchscale.figures.export import PNG_SCALE as PNG_SCALE
    from batchscale.figures.export import chart_page as chart_page
    from batchscale.figures.export import chart_spec as chart_spec
    from batchscale.figures.export import chart_svg as chart_svg
    from batchscale.figures.export import check_suffix as check_suffix
    from batchscale.figures.export import write_chart as write_chart
    from batchscale.figures.export import write_frame as write_frame
    from batchscale.figures.export import write_whole as write_whole
    from batchscale.figures.kind import FigureKind as FigureKind
    from batchscale.figures.kind import FigureRequest as FigureRequest
    from batchscale.figures.kinds import find_kind as find_kind
    from batchscale.figures.kinds import kind_names as kind_names
    from batchscale.figures.kinds.best_of_n import best_of_frame as best_of_frame
    from batchscale.figures.kinds.best_of_n import plot_best_of as plot_best_of
    from batchscale.figures.kinds.budget import budget_frame as budget_frame
    from batchscale.figures.kinds.budget import plot_budget as plot_budget
    from batchscale.figures.kinds.curve import analysis_frame as analysis_frame
    from batchscale.figures.kinds.curve import curve_frame as curve_frame
    from batchscale.figures.kinds.curve import plot_curve as plot_curve
    from batchscale.figures.kinds.curve import point_flags as point_flags
    from batchscale.figures.kinds.curve import what_is_missing as what_is_missing
    from batchscale.figures.kinds.curves import BATCH_SIZE as BATCH_SIZE
    from batchscale.figures.kinds.curves import NORMALISED as NORMALISED
    from batchscale.figures.kinds.curves import STEPS as STEPS
    from batchscale.figures.kinds.curves import plot_curves as plot_curves
    from batchscale.figures.kinds.effective_learning_rate import effective_frame as effective_frame
    from batchscale.figures.kinds.effective_learning_rate import plot_effective as plot_effective
    from batchscale.figures.kinds.expected_steps import plot_expected_steps as plot_expected_steps
    from batchscale.figures.kinds.label_smoothing import plot_split as plot_split
    from batchscale.figures.kinds.label_smoothing import split_frame as split_frame
    from batchscale.figures.kinds.map import map_frame as map_frame
    from batchscale.figures.kinds.map import plot_map as plot_map
    from batchscale.figures.kinds.metaparameter import metaparameter_frame as metaparameter_frame
    from batchscale.figures.kinds.metaparameter import plot_metaparameter as plot_metaparameter
    from batchscale.figures.kinds.plan import plan_frame as plan_frame
    from batchscale.figures.kinds.plan import plot_plan as plot_plan
    from batchscale.figures.kinds.space import SpaceQuestion as SpaceQuestion
    from batchscale.figures.kinds.space import plot_space as plot_space
    from batchscale.figures.kinds.space import range_text as range_text
    from batchscale.figures.kinds.space import space_frame as space_frame
    from batchscale.figures.kinds.step_time import plot_step_time as plot_step_time
    from batchscale.figures.kinds.step_time import step_time_frame as step_time_frame
    from batchscale.figures.kinds.training import TrainingPanel as TrainingPanel
    from batchscale.figures.kinds.training import plot_training as plot_training
    from batchscale.figures.kinds.training import training_frame as training_frame
    from batchscale.figures.kinds.training import training_panels as training_panels
    from batchscale.figures.layout import Chart as Chart
    from batchscale.figures.layout import Drawn as Drawn
    from batchscale.figures.layout import Look as Look
    from batchscale.figures.layout import PanelSize as PanelSize
    from batchscale.figures.layout import draw_panels as draw_panels
    from batchscale.figures.layout import inline as inline
    from batchscale.figures.linked import LinkedQuestion as LinkedQuestion
    from batchscale.figures.linked import linked_frame as linked_frame
    from batchscale.figures.linked import plot_linked as plot_linked
    from batchscale.figures.names import count as count
    from batchscale.figures.names import goal_label as goal_label
    from batchscale.figures.names import metaparameter_label as metaparameter_label
    from batchscale.figures.names import none_reached as none_reached
    from batchscale.figures.names import workload_label as workload_label
    from batchscale.figures.paper import PAPER_FIGURES as PAPER_FIGURES
    from batchscale.figures.paper import PaperFigure as PaperFigure
    from batchscale.figures.paper import find_paper_figure as find_paper_figure
    from batchscale.figures.rates import plot_rates as plot_rates
    from batchscale.figures.selection import select_records as select_records
    from batchscale.figures.series import CurvePanel as CurvePanel
    from batchscale.figures.series import Series as Series
    from batchscale.figures.series import points_frame as points_frame
    from batchscale.figures.series import series_frame as series_frame
    from batchscale.figures.series import workload_panels as workload_panels
    from batchscale.figures.smoothing import beside_raw as beside_raw
    from batchscale.figures.theme import DARK as DARK
    from batchscale.figures.theme import LIGHT as LIGHT
    from batchscale.figures.theme import Theme as Theme
    from batchscale.figures.theme import find_theme as find_theme
    from batchscale.figures.theme import series_colours as series_colours

_PUBLIC = {
    "PNG_SCALE": "export",
    "BATCH_SIZE": "kinds.curves",
    "Chart": "layout",
    "CurvePanel": "series",
    "DARK": "theme",
    "Drawn": "layout",
    "FigureKind": "kind",
    "FigureRequest": "kind",
    "LIGHT": "theme",
    "LinkedQuestion": "linked",
    "Look": "layout",
    "NORMALISED": "kinds.curves",
    "PAPER_FIGURES": "paper",
    "PanelSize": "layout",
    "PaperFigure": "paper",
    "STEPS": "kinds.curves",
    "Series": "series",
    "SpaceQuestion": "kinds.space",
    "Theme": "theme",
    "TrainingPanel": "kinds.training",
    "analysis_frame": "kinds.curve",
    "beside_raw": "smoothing",
    "best_of_frame": "kinds.best_of_n",
    "budget_frame": "kinds.budget",
    "chart_page": "export",
    "chart_spec": "export",
    "chart_svg": "export",
    "check_suffix": "export",
    "common_goal": "default_goal",
    "count": "names",
    "curve_frame": "kinds.curve",
    "draw_panels": "layout",
    "effective_frame": "kinds.effective_learning_rate",
    "find_goal": "default_goal",
    "find_kind": "kinds",
    "find_paper_figure": "paper",
    "find_theme": "theme",
    "goal_label": "names",
    "inline": "layout",
    "kind_names": "kinds",
    "linked_frame": "linked",
    "log_axis": "axes",
    "log_range": "axes",
    "log_scale": "axes",
    "map_frame": "kinds.map",
    "metaparameter_frame": "kinds.metaparameter",
    "metaparameter_label": "names",
    "none_reached": "names",
    "plan_frame": "kinds.plan",
    "plot_best_of": "kinds.best_of_n",
    "plot_budget": "kinds.budget",
    "plot_curve": "kinds.curve",
    "plot_curves": "kinds.curves",
    "plot_effective": "kinds.effective_learning_rate",
    "plot_expected_steps": "kinds.expected_steps",
    "plot_linked": "linked",
    "plot_map": "kinds.map",
    "plot_metaparameter": "kinds.metaparameter",
    "plot_plan": "kinds.plan",
    "plot_rates": "rates",
    "plot_space": "kinds.space",
    "plot_split": "kinds.label_smoothing",
    "plot_step_time": "kinds.step_time",
    "plot_training": "kinds.training",
    "point_flags": "kinds.curve",
    "points_frame": "series",
    "published_goal": "default_goal",
    "range_text": "kinds.space",
    "select_records": "selection",
    "series_colours": "theme",
    "series_frame": "series",
    "size_axis": "axes",
    "space_frame": "kinds.space",
    "split_frame": "kinds.label_smoothing",
    "step_time_frame": "kinds.step_time",
    "training_frame": "kinds.training",
    "training_panels": "kinds.training",
    "what_is_missing": "kinds.curve",
    "workload_label": "names",
    "workload_panels": "series",
    "write_chart": "export",
    "write_frame": "export",
    "write_whole": "export",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = lazy_names(__name__, _PUBLIC)
