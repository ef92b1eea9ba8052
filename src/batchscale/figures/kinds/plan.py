"""Time against cost of every configuration of a plan: the front drawn, intervals as bars, batch sizes as labels."""

from collections.abc import Mapping

import altair as alt
import polars as pl

from batchscale.errors import PlanningError
from batchscale.figures.axes import LogRange, log_axis, log_range, log_scale
from batchscale.figures.frames import empty_reason, panel_notes, rows_or_note
from batchscale.figures.kind import FigureKind, FigureRequest
from batchscale.figures.layout import WIDE, Chart, Drawn, Look, draw_panels, inline
from batchscale.figures.names import workload_label
from batchscale.figures.theme import Theme, series_colours
from batchscale.planning.assemble import plan_records
from batchscale.planning.plan import MachinePlan

LOOK = Look(columns=1, size=WIDE)
MOST_POINTS = 1500
PLAN_CHART_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "machine": pl.String,
    "device": pl.String,
    "hosts": pl.Int64,
    "devices_per_host": pl.Int64,
    "batch_size": pl.Int64,
    "metaparameters": pl.String,
    "hours": pl.Float64,
    "hours_low": pl.Float64,
    "hours_high": pl.Float64,
    "cost": pl.Float64,
    "cost_low": pl.Float64,
    "cost_high": pl.Float64,
    "unit": pl.String,
    "step_time_from": pl.String,
    "on_front": pl.Boolean,
    "note": pl.String,
}


def plan_frame(plan: MachinePlan, panel: str = "plan") -> pl.DataFrame:
    """Return the configurations of a plan (``PLAN_CHART_SCHEMA``); of very many, the fastest and the front."""
    table = plan.table.with_row_index("place")
    drawn = table.filter((pl.col("place") < MOST_POINTS) | pl.col("on_front"))
    hours = {f"hours{end}": pl.col(f"expected_time{end}_s") / 3600 for end in ("", "_low", "_high")}
    costs = {f"cost{end}": pl.col(f"expected_cost{end}") for end in ("", "_low", "_high")}
    rows = drawn.with_columns(**hours, **costs, panel=pl.lit(panel), note=pl.lit(None, dtype=pl.String))
    return rows.select(pl.col(name).cast(kind) for name, kind in PLAN_CHART_SCHEMA.items())


def plot_plan(frame: pl.DataFrame, look: Look = LOOK) -> Chart:
    """Draw a panel per plan: expected hours against expected cost, both logarithmic, a colour per device."""
    return draw_panels(frame, _panel, look, of="plans")


def _panel(frame: pl.DataFrame, look: Look) -> Drawn | str:
    points = frame.drop_nulls("hours")
    if points.is_empty():
        return empty_reason(frame)
    x_span = _span(points, "cost")
    y_span = _span(points, "hours")
    unit = points["unit"][0]
    x = alt.X("cost:Q", scale=log_scale(x_span), axis=log_axis(f"expected cost ({unit})", x_span))
    y = alt.Y("hours:Q", scale=log_scale(y_span), axis=log_axis("expected hours to the goal", y_span))
    front = points.filter("on_front").sort("cost")
    theme = look.theme
    layers = [
        *_bars(points if points.height <= 60 else front, x_span, y_span, theme),
        alt.Chart(inline(front)).mark_line(color=theme.muted, strokeDash=[4, 3], strokeWidth=1.4).encode(x=x, y=y),
        *_dots(points, theme, x, y),
        alt.Chart(inline(front.with_columns(label=pl.format("{}", "batch_size"))))
        .mark_text(dx=8, dy=-8, align="left", fontSize=10.5, color=theme.text)
        .encode(x=x, y=y, text="label:N"),
    ]
    notes = ["labels are batch sizes; the dashed line is the front: nothing is both faster and cheaper"]
    if (points["step_time_from"] != "measured").any():
        notes.append("hollow: step time not measured but modelled")
    return Drawn(layers, [*notes, *panel_notes(frame)])


def _span(points: pl.DataFrame, name: str) -> LogRange:
    ends = [points[name], *(points[f"{name}_{end}"].drop_nulls() for end in ("low", "high"))]
    return log_range(pl.concat(ends), base=10, margin=0.08, least=0.5)


def _bars(points: pl.DataFrame, x_span: LogRange, y_span: LogRange, theme: Theme) -> list[alt.Chart]:
    """Return the interval of the time; that of the cost follows from it and would only double the ink."""
    bounded = points.drop_nulls(["hours_low", "hours_high"])
    if bounded.is_empty():
        return []
    bars: alt.Chart = (
        alt.Chart(inline(bounded))
        .mark_rule(color=theme.muted, strokeWidth=3, strokeOpacity=0.3, aria=False)
        .encode(
            x=alt.X("cost:Q", scale=log_scale(x_span)),
            y=alt.Y("hours_low:Q", scale=log_scale(y_span)),
            y2="hours_high:Q",
        )
    )
    return [bars]


def _dots(points: pl.DataFrame, theme: Theme, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    devices = points["device"].unique().sort().to_list()
    scale = alt.Scale(domain=devices, range=series_colours(theme, len(devices), ordered=False))
    legend = alt.Legend(title=None, orient="bottom") if len(devices) > 1 else None
    colour = alt.Color("device:N", scale=scale, legend=legend)
    tooltips = [
        alt.Tooltip("machine:N"),
        alt.Tooltip("hosts:Q"),
        alt.Tooltip("devices_per_host:Q", title="devices per host"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("metaparameters:N"),
        alt.Tooltip("hours:Q", format=".3g"),
        alt.Tooltip("cost:Q", format=",.4g"),
        alt.Tooltip("step_time_from:N", title="step time"),
    ]
    layers: list[alt.Chart] = []
    for measured in (False, True):
        rows = points.filter((pl.col("step_time_from") == "measured") == measured)
        if rows.is_empty():
            continue
        mark = alt.Chart(inline(rows)).mark_point(size=46, filled=measured, opacity=0.9, strokeWidth=1.6)
        layers.append(mark.encode(x=x, y=y, color=colour, tooltip=tooltips))
    return layers


def _data(request: FigureRequest) -> pl.DataFrame:
    frames = []
    for name in request.records.workloads:
        title = workload_label(name)

        def make(name=name, title=title) -> pl.DataFrame:  # type: ignore[no-untyped-def]
            if request.machines is None:
                raise PlanningError("a plan needs machines with prices: give --machines")
            return plan_frame(
                plan_records(request.counted, name, request.goal, request.machines, request.step_times), title
            )

        frames.append(rows_or_note(PLAN_CHART_SCHEMA, {"panel": title}, make))
    return pl.concat(frames) if frames else pl.DataFrame(schema=PLAN_CHART_SCHEMA)


KIND = FigureKind(
    "expected time against expected cost on the machines of --machines, with the front", _data, plot_plan, LOOK
)
