"""Charts for pages: every kind of figure as a drawing, as a specification to explore, and as its data.

A drawing is shown as an image, in which nothing can run; a specification is embedded by the page's own script.
"""

import copy
import threading
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from batchscale.errors import BatchscaleError
from batchscale.figures import (
    FigureRequest,
    Theme,
    chart_spec,
    chart_svg,
    find_goal,
    find_kind,
    find_theme,
    kind_names,
    plot_training,
    training_frame,
)
from batchscale.figures.kinds.training import TrainingPanel
from batchscale.figures.layout import Chart
from batchscale.records import Records
from batchscale.spec import Budget, Goal, Unit, WorkloadName
from batchscale.web.places import Place
from batchscale.web.refusals import RefusedError
from batchscale.web.shelf import OpenRecords

PNG_SCALE = 2.0
NEEDS_MACHINES = ("plan",)
_RENDERING = threading.Lock()


@dataclass(frozen=True)
class ChartWish:
    """Which chart of which workload. ``trials`` are those whose learning curves are drawn, by batch size."""

    kind: str
    number: int
    theme: str = "light"
    steps: int | None = None
    trials: tuple[tuple[int, int], ...] = ()

    @property
    def data_key(self) -> str:
        """What its data is kept under."""
        return f"chart {self.kind} {self.number} {self.steps} {self.trials}"


def chart_kinds() -> tuple[str, ...]:
    """The kinds that need nothing but records."""
    return tuple(name for name in kind_names() if name not in NEEDS_MACHINES)


def workload_at(records: Records, number: int) -> WorkloadName:
    """The workload of that rank."""
    names = records.workloads
    if not 0 <= number < len(names):
        raise RefusedError(404, f"There are {len(names)} workloads here. Found number {number}.")
    return names[number]


def require_goal(records: Records, name: WorkloadName) -> Goal:
    """The goal that the records name, or the paper does."""
    goal = find_goal(records, name)
    if goal is None:
        raise BatchscaleError("These records name no goal, so there is no curve. Their data can be downloaded.")
    return goal


def chart_frame(shelf: OpenRecords, place: Place, wish: ChartWish) -> pl.DataFrame:
    """The data behind a chart."""
    return shelf.answer(place.path, wish.data_key, lambda records: _frame(records, wish))


def chart_drawing(shelf: OpenRecords, place: Place, wish: ChartWish) -> str:
    """The chart as SVG."""

    def work(_records: Records) -> str:
        chart = _plot(chart_frame(shelf, place, wish), wish)
        with _RENDERING:
            return chart_svg(chart)

    return shelf.answer(place.path, f"{wish.data_key} svg {wish.theme}", work)


def chart_picture(shelf: OpenRecords, place: Place, wish: ChartWish) -> bytes:
    """The chart as PNG."""
    import vl_convert

    drawing = chart_drawing(shelf, place, wish)
    with _RENDERING:
        return bytes(vl_convert.svg_to_png(drawing, scale=PNG_SCALE))


def chart_specification(shelf: OpenRecords, place: Place, wish: ChartWish) -> dict[str, Any]:
    """The chart for the page's script, with panels that can be moved and enlarged."""
    return explorable(chart_spec(_plot(chart_frame(shelf, place, wish), wish)))


def explorable(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification with axes that follow the pointer, where the renderer's compiler accepts that."""
    import vl_convert

    changed = copy.deepcopy(spec)
    for place, view in enumerate(_views(changed)):
        zoom = {"name": f"zoom_{place}", "select": "interval", "bind": "scales"}
        view["params"] = [*view.get("params", []), zoom]
    try:
        with _RENDERING:
            vl_convert.vegalite_to_vega(changed)
    except ValueError:
        return spec
    return changed


def _views(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """One unit view of every panel: the first of its layers that has data on both axes."""
    for key in ("hconcat", "vconcat", "concat"):
        if key in spec:
            return [view for part in spec[key] for view in _views(part)]
    if "layer" in spec:
        return [view for layer in spec["layer"] for view in _views(layer)][:1]
    if "spec" in spec:
        return _views(spec["spec"])
    encoding = spec.get("encoding", {})
    return [spec] if all("field" in encoding.get(axis, {}) for axis in ("x", "y")) else []


def _frame(records: Records, wish: ChartWish) -> pl.DataFrame:
    name = workload_at(records, wish.number)
    goal = require_goal(records, name)
    chosen = records.workload(name)
    if wish.trials:
        return training_frame(chosen, _panels(name, goal, wish.trials))
    budgets = () if wish.steps is None else (Budget(wish.steps, Unit.STEPS),)
    return find_kind(wish.kind).data(FigureRequest(chosen, (goal,), budgets=budgets))


def _panels(name: WorkloadName, goal: Goal, trials: tuple[tuple[int, int], ...]) -> list[TrainingPanel]:
    sizes = sorted({size for size, _ in trials})
    return [
        TrainingPanel(
            f"batch size {size:,}", name, size, goal.metric, goal,
            {f"trial {trial}": trial for own, trial in trials if own == size}, background=False,
        )
        for size in sizes
    ]  # fmt: skip


def _plot(frame: pl.DataFrame, wish: ChartWish) -> Chart:
    theme: Theme = find_theme(wish.theme)
    if wish.trials:
        return plot_training(frame, replace(find_kind("training").look, theme=theme))
    return find_kind(wish.kind).plot(frame, theme)
