"""Charts for pages: every kind of figure as a drawing, as a specification to explore, and as its data.

A drawing is shown as an image, in which nothing can run; a specification is embedded by the page's own script.
"""

import copy
import json
import threading
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from batchscale.errors import BatchscaleError
from batchscale.figures.export import PNG_SCALE, chart_spec, chart_svg
from batchscale.figures.kind import FigureRequest
from batchscale.figures.kinds import find_kind, kind_names
from batchscale.figures.kinds.training import TrainingPanel, plot_training, training_frame
from batchscale.figures.layout import Chart, Look, PanelSize
from batchscale.figures.linked import beside_raw
from batchscale.figures.selection import find_goal
from batchscale.figures.theme import find_theme
from batchscale.records.frames import Records
from batchscale.spec.durations import Budget, Unit
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName
from batchscale.web.records_folders import RecordsFolder
from batchscale.web.refusals import RefusedError
from batchscale.web.shelf import OpenRecords

CURVE_SIZE = PanelSize(560, 360)
MARGIN = 105  # what axis, title and padding of a panel take beside its plotting area
NEEDS_MACHINES = ("plan",)
RENDERING = threading.Lock()
WIDTHS = (300, 340, 380, 460, 600, 760, 920, 1100, 1300)
_ACCEPTED: dict[tuple[str, int], bool] = {}


@dataclass(frozen=True)
class ChartWish:
    """Which chart of which workload.

    ``trials`` are those whose learning curves are drawn, by batch size; ``smooth`` is the weight of their smoothing;
    ``width`` the room there is, in points.
    """

    kind: str
    number: int
    theme: str = "light"
    steps: int | None = None
    trials: tuple[tuple[int, int], ...] = ()
    smooth: float = 0.0
    width: int | None = None

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


def chart_frame(shelf: OpenRecords, folder: RecordsFolder, wish: ChartWish) -> pl.DataFrame:
    """The data behind a chart."""
    return shelf.answer(folder.path, wish.data_key, lambda records: _frame(records, wish))


def chart_drawing(shelf: OpenRecords, folder: RecordsFolder, wish: ChartWish) -> str:
    """The chart as SVG."""

    def work(_records: Records) -> str:
        chart = _plot(chart_frame(shelf, folder, wish), wish)
        with RENDERING:
            return chart_svg(chart)

    return shelf.answer(folder.path, f"{wish.data_key} svg {wish.theme} {wish.smooth:g}", work)


def chart_picture(shelf: OpenRecords, folder: RecordsFolder, wish: ChartWish) -> bytes:
    """The chart as PNG."""
    return picture_of(chart_drawing(shelf, folder, wish))


def picture_of(drawing: str) -> bytes:
    """A drawing as PNG."""
    import vl_convert

    with RENDERING:
        return bytes(vl_convert.svg_to_png(drawing, scale=PNG_SCALE))


def chart_specification(shelf: OpenRecords, folder: RecordsFolder, wish: ChartWish) -> bytes:
    """The chart as JSON for the page's script, with panels that can be moved and enlarged."""

    def work(_records: Records) -> bytes:
        spec = chart_spec(_plot(chart_frame(shelf, folder, wish), wish))
        return json.dumps(explorable(spec, wish.kind)).encode()

    key = f"{wish.data_key} json {wish.theme} {wish.smooth:g} {wish.width}"
    return shelf.answer(folder.path, key, work)


def explorable(spec: dict[str, Any], kind: str) -> dict[str, Any]:
    """The specification with axes that follow the pointer, where the renderer's compiler accepts that."""
    changed = copy.deepcopy(spec)
    views = _views(changed)
    for number, view in enumerate(views):
        zoom = {"name": f"zoom_{number}", "select": "interval", "bind": "scales"}
        view["params"] = [*view.get("params", []), zoom]
    alike = (kind, len(views))  # compiling takes longer than all the rest, and charts of a kind are alike
    if alike not in _ACCEPTED:
        _ACCEPTED[alike] = _compiles(changed)
    return changed if _ACCEPTED[alike] else spec


def _compiles(spec: dict[str, Any]) -> bool:
    import vl_convert

    try:
        with RENDERING:
            vl_convert.vegalite_to_vega(spec)
    except ValueError:
        return False
    return True


def nearest_width(width: int | None) -> int | None:
    """The next of a few widths below, so that what is kept for one visitor serves others.

    >>> nearest_width(1250), nearest_width(10), nearest_width(None)
    (1100, 300, None)
    """
    return None if width is None else max((one for one in WIDTHS if one <= width), default=WIDTHS[0])


def fitting(look: Look, width: int | None) -> Look:
    """The look with as many panels in a row as fit a width, and panels that fit.

    >>> fitting(Look(columns=3), 340).columns, fitting(Look(columns=3), 340).size.width
    (1, 235)
    """
    if width is None:
        return look
    columns = max(1, min(look.columns, width // (look.size.width + MARGIN)))
    narrow = min(look.size.width, width - MARGIN)
    size = look.size if narrow == look.size.width else PanelSize(narrow, max(180, look.size.height * 4 // 5))
    return replace(look, columns=columns, size=size)


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
    kind = find_kind(wish.kind)
    look = replace(kind.look, theme=find_theme(wish.theme))
    if wish.kind == "curve" and wish.width is not None and wish.width < CURVE_SIZE.width + MARGIN:
        look = replace(look, size=CURVE_SIZE)  # what it takes by itself where there is room
    look = fitting(look, wish.width)
    if wish.trials:
        return plot_training(beside_raw(frame, wish.smooth), look)
    return kind.chart(frame, look)
