"""Time against cost of every configuration of a plan: the front drawn, intervals as bars, batch sizes as labels."""

from collections.abc import Mapping
from typing import Any, Literal

import altair as alt
import polars as pl

from batchscale.errors import PlanningError
from batchscale.figures.axes import LogRange, log_range, log_scale, number_axis
from batchscale.figures.frames import empty_reason, panel_notes, rows_or_note
from batchscale.figures.kind import FigureKind, FigureRequest
from batchscale.figures.layout import WIDE, Chart, Drawn, Look, draw_panels, inline
from batchscale.figures.names import workload_label
from batchscale.figures.size_marks import LETTER
from batchscale.figures.theme import Theme, series_colours
from batchscale.formatting import duration
from batchscale.planning.answer import plan_tags
from batchscale.planning.assemble import plan_records
from batchscale.planning.plan import MachinePlan
from batchscale.planning.sentences import cost_text, place_text

LOOK = Look(columns=1, size=WIDE)
MOST_POINTS = 1500
WIDE_LABELS = 500  # the width of a panel from which on labels have the batch size too
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
    "configuration": pl.String,
    "pick": pl.String,  # fastest, cheapest, within budget, within deadline
    "note": pl.String,
}


def plan_frame(plan: MachinePlan, panel: str = "plan") -> pl.DataFrame:
    """Return the configurations of a plan (``PLAN_CHART_SCHEMA``); of very many, the fastest and the front."""
    table = plan.table.with_row_index("place")
    drawn = table.filter((pl.col("place") < MOST_POINTS) | pl.col("on_front"))
    hours = {f"hours{end}": pl.col(f"expected_time{end}_s") / 3600 for end in ("", "_low", "_high")}
    costs = {f"cost{end}": pl.col(f"expected_cost{end}") for end in ("", "_low", "_high")}
    choices = drawn.drop("place").to_dicts()
    texts: dict[str, list[str | None]] = {
        "configuration": [place_text(choice) for choice in choices],
        "pick": [", ".join(plan_tags(plan, choice)) or None for choice in choices],
    }
    named = [pl.Series(name, values, dtype=pl.String) for name, values in texts.items()]
    rows = drawn.with_columns(*named, **hours, **costs, panel=pl.lit(panel), note=pl.lit(None, dtype=pl.String))
    return rows.select(pl.col(name).cast(kind) for name, kind in PLAN_CHART_SCHEMA.items())


def plot_plan(frame: pl.DataFrame, look: Look = LOOK) -> Chart:
    """Draw a panel per plan: expected hours against expected cost, both logarithmic, a colour per device."""
    return draw_panels(frame, _panel, look, of="plans")


def _panel(frame: pl.DataFrame, look: Look) -> Drawn | str:
    points = frame.drop_nulls("hours")
    if points.is_empty():
        return empty_reason(frame)
    theme, unit = look.theme, points["unit"][0]
    time_unit, per_hour = _time_unit(float(points["hours"].median() or 1))  # type: ignore[arg-type] # hours are floats
    points = points.with_columns(
        pl.col("hours", "hours_low", "hours_high") * per_hour,
        time=pl.col("hours").map_elements(lambda hours: duration(3600 * hours), return_dtype=pl.String),
        price=pl.col("cost").map_elements(lambda cost: cost_text(cost, unit), return_dtype=pl.String),
    )
    x_span, y_span = _span(points, "cost", 0.14), _span(points, "hours", 0.08)
    x = alt.X("cost:Q", scale=log_scale(x_span), axis=number_axis(f"expected cost ({unit})", x_span))
    y = alt.Y("hours:Q", scale=log_scale(y_span), axis=number_axis(f"expected {time_unit} to the goal", y_span))
    front = points.filter("on_front").sort("cost")
    layers = [
        *_bars(points if points.height <= 60 else front, x_span, y_span, theme),
        alt.Chart(inline(front)).mark_line(color=theme.muted, strokeDash=[4, 3], strokeWidth=1.4).encode(x=x, y=y),
        *_dots(points, theme, x, y),
        *_labels(points, theme, x, y, x_span, look.size.width),
    ]
    notes = ["labels are batch sizes; the dashed line is the front: nothing is both faster and cheaper"]
    if (points["step_time_from"] != "measured").any():
        notes.append("hollow: step time not measured but modelled")
    return Drawn(layers, [*notes, *panel_notes(frame)])


def _time_unit(hours: float) -> tuple[str, float]:
    """Return the unit that a person would give such times in, and how many of it an hour has.

    >>> _time_unit(9.8), _time_unit(0.2), _time_unit(1e-3)
    (('hours', 1.0), ('minutes', 60.0), ('seconds', 3600.0))
    """
    units = (("hours", 1.0, 0.75), ("minutes", 60.0, 1 / 60), ("seconds", 3600.0, 1 / 3600))
    return next(((name, per_hour) for name, per_hour, least in units if hours >= least), ("milliseconds", 3.6e6))


def _labels(points: pl.DataFrame, theme: Theme, x: alt.X, y: alt.Y, x_span: LogRange, width: int) -> list[alt.Chart]:
    """Return the names of the picks with a ring around them, and the batch sizes of the rest of the front."""
    is_pick = pl.col("pick").is_not_null()
    short = pl.col("pick").str.split(", ").list.first()
    name = pl.format("{}: batch size {}", short, "batch_size") if width >= WIDE_LABELS else short
    picks = points.filter(is_pick).with_columns(label=name)
    others = points.filter("on_front", ~is_pick).with_columns(label=pl.col("batch_size").cast(pl.String))
    layers: list[alt.Chart] = []
    weights: tuple[tuple[pl.DataFrame, Literal["normal", "bold"]], ...] = ((others, "normal"), (picks, "bold"))
    for rows, weight in weights:
        # Below on the left, where nothing can lie: it would be both faster and cheaper. Else above on the right.
        place = (pl.col("cost").log(10) - x_span.low) / (x_span.high - x_span.low) * width
        has_room = place >= pl.col("label").str.len_chars() * LETTER + 14
        sides: tuple[tuple[Literal["left", "right"], pl.Expr], ...] = (("right", has_room), ("left", ~has_room))
        for align, condition in sides:
            part = rows.filter(condition)
            if part.is_empty():
                continue
            dx, dy = (-11, 14) if align == "right" else (11, -14)
            words: dict[str, Any] = {
                "align": align,
                "dx": dx,
                "dy": dy,
                "fontSize": 11,
                "fontWeight": weight,
                "aria": False,
            }
            outline: dict[str, Any] = {"stroke": theme.ground, "strokeWidth": 3}
            for colours in (outline, {"color": theme.text}):  # readable on a line
                text = alt.Chart(inline(part)).mark_text(**words, **colours)
                layers.append(text.encode(x=x, y=y, text="label:N"))
    if not picks.is_empty():
        ring = alt.Chart(inline(picks)).mark_point(
            size=190, filled=False, stroke=theme.text, strokeWidth=1.6, aria=False
        )
        layers.append(ring.encode(x=x, y=y))
    return layers


def _span(points: pl.DataFrame, name: str, margin: float) -> LogRange:
    ends = [points[name], *(points[f"{name}_{end}"].drop_nulls() for end in ("low", "high"))]
    return log_range(pl.concat(ends), base=10, margin=margin, least=0.5)


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
        alt.Tooltip("configuration:N"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("metaparameters:N"),
        alt.Tooltip("time:N"),
        alt.Tooltip("price:N", title="cost"),
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
