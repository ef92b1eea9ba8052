"""Charts of one workload: every kind of figure as an SVG drawing, as a Vega-Lite specification, and as its data.

A drawing is shown as an image, in which nothing can run; a specification is embedded by the page's script.
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
from batchscale.formatting import count_text
from batchscale.records.frames import Records
from batchscale.spec.durations import Budget, Unit
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName
from batchscale.web.records_cache import RecordsCache
from batchscale.web.records_folders import RecordsFolder
from batchscale.web.refusals import RefusedError

CURVE_SIZE = PanelSize(560, 360)
MARGIN = 105  # axis, title and padding of a panel
CURVE_MARGIN = 84  # axis and padding of the curve
NEEDS_MACHINES = ("plan",)
RENDERING = threading.Lock()
WIDTHS = (*range(300, 920, 20), *range(920, 1320, 40))
_ACCEPTED: dict[tuple[str, int], bool] = {}


@dataclass(frozen=True)
class ChartQuery:
    """A kind of chart of a workload.

    ``trials`` are (batch size, trial) whose learning curves are drawn, ``smooth`` is the weight of their smoothing, and
    ``width`` the width of the page in points.
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
        """The key of its data in the cache."""
        return f"chart {self.kind} {self.number} {self.steps} {self.trials}"


def chart_kinds() -> tuple[str, ...]:
    """Return the kinds that need nothing but records."""
    return tuple(name for name in kind_names() if name not in NEEDS_MACHINES)


def workload_at(records: Records, number: int) -> WorkloadName:
    """Return the workload of that rank."""
    names = records.workloads
    if not 0 <= number < len(names):
        raise RefusedError(
            404, f"The records have {count_text(len(names), 'workload')}, counted from 0. Found number {number}."
        )
    return names[number]


def require_goal(records: Records, name: WorkloadName) -> Goal:
    """Return the goal that the records or the paper name."""
    goal = find_goal(records, name)
    if goal is None:
        raise BatchscaleError("These records name no goal, so there is no curve. Their data can be downloaded.")
    return goal


def chart_frame(cache: RecordsCache, folder: RecordsFolder, query: ChartQuery) -> pl.DataFrame:
    """Return the data of a chart."""
    return cache.result(folder.path, query.data_key, lambda records: _frame(records, query))


def chart_drawing(cache: RecordsCache, folder: RecordsFolder, query: ChartQuery) -> str:
    """Return the chart as SVG."""

    def work(_records: Records) -> str:
        chart = _plot(chart_frame(cache, folder, query), query)
        with RENDERING:
            return chart_svg(chart)

    return cache.result(folder.path, f"{query.data_key} svg {query.theme} {query.smooth:g}", work)


def chart_picture(cache: RecordsCache, folder: RecordsFolder, query: ChartQuery) -> bytes:
    """Return the chart as PNG."""
    return picture_of(chart_drawing(cache, folder, query))


def picture_of(drawing: str) -> bytes:
    """Return a drawing as PNG."""
    import vl_convert

    with RENDERING:
        return bytes(vl_convert.svg_to_png(drawing, scale=PNG_SCALE))


def chart_specification(cache: RecordsCache, folder: RecordsFolder, query: ChartQuery) -> bytes:
    """Return the chart as JSON for the page's script, with panels that can be moved and zoomed."""

    def work(_records: Records) -> bytes:
        spec = chart_spec(_plot(chart_frame(cache, folder, query), query))
        return json.dumps(explorable(spec, query.kind)).encode()

    key = f"{query.data_key} json {query.theme} {query.smooth:g} {query.width}"
    return cache.result(folder.path, key, work)


def explorable(spec: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the specification with axes that can be moved and zoomed, if the renderer's compiler accepts that."""
    changed = copy.deepcopy(spec)
    views = _views(changed)
    for number, view in enumerate(views):
        zoom = {"name": f"zoom_{number}", "select": "interval", "bind": "scales"}
        view["params"] = [*view.get("params", []), zoom]
    layout = (kind, len(views))  # compiling is slow, and charts of a kind compile alike
    if layout not in _ACCEPTED:
        _ACCEPTED[layout] = _compiles(changed)
    return changed if _ACCEPTED[layout] else spec


def _compiles(spec: dict[str, Any]) -> bool:
    import vl_convert

    try:
        with RENDERING:
            vl_convert.vegalite_to_vega(spec)
    except ValueError:
        return False
    return True


def nearest_width(width: int | None) -> int | None:
    """Return the next of a few widths below, so that a cached chart serves many visitors.

    >>> nearest_width(1250), nearest_width(10), nearest_width(None)
    (1240, 300, None)
    """
    return None if width is None else max((candidate for candidate in WIDTHS if candidate <= width), default=WIDTHS[0])


def fitting(look: Look, width: int | None) -> Look:
    """Return the look with as many panels in a row as fit a width, and panels that fit.

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
    """Return one unit view of every panel: the first of its layers that has data on both axes."""
    for key in ("hconcat", "vconcat", "concat"):
        if key in spec:
            return [view for part in spec[key] for view in _views(part)]
    if "layer" in spec:
        return [view for layer in spec["layer"] for view in _views(layer)][:1]
    if "spec" in spec:
        return _views(spec["spec"])
    encoding = spec.get("encoding", {})
    return [spec] if all("field" in encoding.get(axis, {}) for axis in ("x", "y")) else []


def _frame(records: Records, query: ChartQuery) -> pl.DataFrame:
    name = workload_at(records, query.number)
    goal = require_goal(records, name)
    selected = records.workload(name)
    if query.trials:
        return training_frame(selected, _panels(name, goal, query.trials))
    budgets = () if query.steps is None else (Budget(query.steps, Unit.STEPS),)
    return find_kind(query.kind).data(FigureRequest(selected, (goal,), budgets=budgets))


def _curve_size(width: int | None) -> PanelSize:
    """Return the size of the curve in a page of that width, which it fills."""
    if width is None:
        return CURVE_SIZE
    panel = max(200, min(900, width - CURVE_MARGIN))
    return PanelSize(panel, max(230, min(400, panel * 10 // 18)))


def _panels(name: WorkloadName, goal: Goal, trials: tuple[tuple[int, int], ...]) -> list[TrainingPanel]:
    sizes = sorted({size for size, _ in trials})
    return [
        TrainingPanel(
            f"batch size {size:,}", name, size, goal.metric, goal,
            {f"trial {trial}": trial for trial_size, trial in trials if trial_size == size}, background=False,
        )
        for size in sizes
    ]  # fmt: skip


def _plot(frame: pl.DataFrame, query: ChartQuery) -> Chart:
    kind = find_kind(query.kind)
    look = replace(kind.look, theme=find_theme(query.theme))
    if query.kind == "curve":  # the page around it has its title and its notes
        look = replace(look, is_bare=query.width is not None, size=_curve_size(query.width))
    else:
        look = fitting(look, query.width)
    if query.trials:
        return plot_training(beside_raw(frame, query.smooth), look)
    return kind.chart(frame, look)
