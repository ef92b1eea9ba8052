"""Time to the goal against the number of devices: a line per machine, its interval, and where more stop paying."""

from collections.abc import Mapping

import altair as alt
import polars as pl

from batchscale.errors import PlanningError
from batchscale.figures.axes import log_axis, log_range, log_scale
from batchscale.figures.frames import empty_reason, panel_notes, rows_or_note
from batchscale.figures.kind import FigureKind, FigureRequest
from batchscale.figures.layout import WIDE, Chart, Drawn, Look, draw_panels, inline
from batchscale.figures.names import workload_label
from batchscale.figures.theme import series_colours
from batchscale.planning.assemble import plan_records
from batchscale.planning.more_devices import MORE_DEVICES_SCHEMA, more_devices
from batchscale.planning.plan import MachinePlan

LOOK = Look(columns=1, size=WIDE)
MOST_MACHINES = 5
ROUNDING = 1e-9
DEVICES_CHART_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    **MORE_DEVICES_SCHEMA,
    "note": pl.String,
}


def more_devices_frame(plan: MachinePlan, panel: str = "plan") -> pl.DataFrame:
    """Return the doublings of hosts of a plan's machines (``DEVICES_CHART_SCHEMA``): the fastest of each device."""
    frame = more_devices(plan.table)
    fastest = frame.sort("hours", "machine").unique("device", keep="first", maintain_order=True)["machine"]
    doubled = frame.filter((pl.col("hosts").log(2) % 1 < ROUNDING) | (pl.col("hosts").log(2) % 1 > 1 - ROUNDING))
    rows = doubled.filter(pl.col("machine").is_in(fastest.head(MOST_MACHINES).to_list())).with_columns(
        panel=pl.lit(panel), note=pl.lit(None, dtype=pl.String)
    )
    return rows.select(pl.col(name).cast(kind) for name, kind in DEVICES_CHART_SCHEMA.items())


def plot_more_devices(frame: pl.DataFrame, look: Look = LOOK) -> Chart:
    """Draw a panel per plan: expected hours against the number of devices, both logarithmic, a colour per machine."""
    return draw_panels(frame, _panel, look, of="plans")


def _panel(frame: pl.DataFrame, look: Look) -> Drawn | str:
    points = frame.drop_nulls("hours")
    if points.is_empty():
        return empty_reason(frame)
    ends = [points[name].drop_nulls() for name in ("hours", "hours_low", "hours_high")]
    x_span = log_range(points["devices"].cast(pl.Float64), margin=0.3)
    y_span = log_range(pl.concat(ends), base=10, margin=0.08, least=0.5)
    x = alt.X("devices:Q", scale=log_scale(x_span), axis=log_axis("devices", x_span))
    y = alt.Y("hours:Q", scale=log_scale(y_span), axis=log_axis("expected hours to the goal", y_span))
    low = alt.Y("hours_low:Q", scale=log_scale(y_span))
    machines = points["machine"].unique(maintain_order=True).to_list()
    scale = alt.Scale(domain=machines, range=series_colours(look.theme, len(machines), ordered=False))
    colour = alt.Color(
        "machine:N", scale=scale, legend=alt.Legend(title=None, orient="bottom", columns=2, symbolOpacity=1)
    )
    tooltips = [
        alt.Tooltip("machine:N"),
        alt.Tooltip("devices:Q", format=","),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("hours:Q", format=".3g"),
        alt.Tooltip("cost:Q", format=",.4g"),
        alt.Tooltip("step_time_from:N", title="step time"),
    ]
    band = alt.Chart(inline(points)).mark_area(opacity=0.1, aria=False)
    layers = [
        band.encode(x=x, y=low, y2="hours_high:Q", color=colour),
        alt.Chart(inline(points)).mark_line(strokeWidth=1.6).encode(x=x, y=y, color=colour),
        alt.Chart(inline(points)).mark_point(size=24, filled=True).encode(x=x, y=y, color=colour, tooltip=tooltips),
        alt.Chart(inline(points.filter("stop")))
        .mark_point(size=150, shape="diamond", filled=False, strokeWidth=2)
        .encode(x=x, y=y, color=colour, tooltip=tooltips),
    ]
    notes = ["diamonds: twice as many devices would cost more than they save", "bands: 90 % intervals"]
    return Drawn(layers, [*notes, *panel_notes(frame)])


def _data(request: FigureRequest) -> pl.DataFrame:
    frames = []
    for name in request.records.workloads:
        title = workload_label(name)

        def make(name=name, title=title) -> pl.DataFrame:  # type: ignore[no-untyped-def]
            if request.machines is None:
                raise PlanningError("a plan needs machines with prices: give --machines")
            plan = plan_records(request.counted, name, request.goal, request.machines, request.step_times)
            return more_devices_frame(plan, title)

        frames.append(rows_or_note(DEVICES_CHART_SCHEMA, {"panel": title}, make))
    return pl.concat(frames) if frames else pl.DataFrame(schema=DEVICES_CHART_SCHEMA)


KIND = FigureKind(
    "expected time against the number of devices on the machines of --machines, and where more stop paying",
    _data,
    plot_more_devices,
    LOOK,
)
