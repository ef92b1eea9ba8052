"""Step time against a device's share of the batch: measured points, and the model through them, a line per layout."""

from collections.abc import Iterable, Mapping

import altair as alt
import numpy as np
import polars as pl

from batchscale.errors import PlanningError
from batchscale.figures.axes import log_axis, log_range, log_scale
from batchscale.figures.frames import empty_reason, panel_notes, rows_or_note
from batchscale.figures.kind import FigureKind, FigureRequest
from batchscale.figures.layout import Chart, Drawn, Look, PanelSize, draw_panels, inline
from batchscale.figures.names import workload_label
from batchscale.figures.theme import series_colours
from batchscale.planning.assemble import step_models_of_records
from batchscale.planning.step_model import StepModel

LOOK = Look(columns=2, size=PanelSize(400, 280))
STEP_TIME_CHART_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "layout": pl.String,  # hosts × devices per host
    "hosts": pl.Int64,
    "devices_per_host": pl.Int64,
    "batch_size": pl.Int64,  # null for points of the model's line
    "per_device_batch": pl.Float64,
    "step_time_s": pl.Float64,
    "step_time_low_s": pl.Float64,
    "step_time_high_s": pl.Float64,
    "model_s": pl.Float64,
    "left_out_error": pl.Float64,
    "note": pl.String,
}
LINE_POINTS = 40


def step_time_frame(models: Iterable[StepModel], prefix: str = "") -> pl.DataFrame:
    """Return measured step times with the model's beside them, and the model's lines: ``STEP_TIME_CHART_SCHEMA``."""
    frames = [pl.DataFrame(schema=STEP_TIME_CHART_SCHEMA)]
    for model in models:
        panel = f"{prefix}{model.device}"
        fitted = [time.step_time_s * (1 + r) for time, r in zip(model.times, model.residuals, strict=True)]
        rows = [
            {
                "panel": panel,
                "layout": _layout(time.hosts, time.devices_per_host),
                "hosts": time.hosts,
                "devices_per_host": time.devices_per_host,
                "batch_size": time.batch_size,
                "per_device_batch": float(time.per_device_batch),
                "step_time_s": time.step_time_s,
                "step_time_low_s": time.low,
                "step_time_high_s": time.high,
                "model_s": value,
                "left_out_error": None if np.isnan(error) else float(error),
                "note": None,
            }
            for time, value, error in zip(model.times, fitted, model.left_out, strict=True)
        ]
        frames += [pl.DataFrame(rows, schema=STEP_TIME_CHART_SCHEMA), *_lines(model, panel)]
    return pl.concat(frames)


def _layout(hosts: int, per_host: int) -> str:
    return f"{hosts} × {per_host}"


def _lines(model: StepModel, panel: str) -> list[pl.DataFrame]:
    if not model.form.per_example:
        return []
    shares = [time.per_device_batch for time in model.times]
    grid = np.geomspace(min(shares), max(shares), LINE_POINTS)
    frames = []
    for hosts, per_host in sorted({(time.hosts, time.devices_per_host) for time in model.times}):
        line = pl.DataFrame({"per_device_batch": grid, "model_s": model.line(hosts, per_host, grid)}).with_columns(
            panel=pl.lit(panel),
            layout=pl.lit(_layout(hosts, per_host)),
            hosts=pl.lit(hosts),
            devices_per_host=pl.lit(per_host),
        )
        missing = [
            pl.lit(None, dtype=kind).alias(name)
            for name, kind in STEP_TIME_CHART_SCHEMA.items()
            if name not in line.columns
        ]
        frames.append(
            line.with_columns(missing).select(pl.col(name).cast(kind) for name, kind in STEP_TIME_CHART_SCHEMA.items())
        )
    return frames


def plot_step_time(frame: pl.DataFrame, look: Look = LOOK) -> Chart:
    """Draw a panel per kind of device: measured step times as points with their intervals, the model as lines."""
    return draw_panels(frame, _panel, look, of="devices")


def _panel(frame: pl.DataFrame, look: Look) -> Drawn | str:
    points = frame.drop_nulls("step_time_s")
    if points.is_empty():
        return empty_reason(frame)
    lines = frame.filter(pl.col("step_time_s").is_null()).drop_nulls("model_s")
    x_span = log_range(points["per_device_batch"], margin=0.3)
    ends = [points[name].drop_nulls() for name in ("step_time_s", "step_time_low_s", "step_time_high_s", "model_s")]
    y_span = log_range(pl.concat([*ends, lines["model_s"]]), base=10, margin=0.08, least=0.5)
    x = alt.X("per_device_batch:Q", scale=log_scale(x_span), axis=log_axis("examples per device", x_span))
    y = alt.Y("step_time_s:Q", scale=log_scale(y_span), axis=log_axis("seconds per step", y_span))
    layouts = points.sort("hosts", "devices_per_host")["layout"].unique(maintain_order=True).to_list()
    scale = alt.Scale(domain=layouts, range=series_colours(look.theme, len(layouts), ordered=False))
    colour = alt.Color("layout:N", sort=None, scale=scale, legend=alt.Legend(title="hosts × devices", orient="right"))
    tooltips = [
        alt.Tooltip("layout:N", title="hosts × devices"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("step_time_s:Q", title="measured, s", format=".4g"),
        alt.Tooltip("model_s:Q", title="model, s", format=".4g"),
    ]
    bounded = points.drop_nulls(["step_time_low_s", "step_time_high_s"])
    bars = alt.Chart(inline(bounded)).mark_rule(strokeWidth=4, strokeOpacity=0.35, aria=False)
    low = alt.Y("step_time_low_s:Q", scale=log_scale(y_span))
    model_y = alt.Y("model_s:Q", scale=log_scale(y_span))
    layers = [
        *([bars.encode(x=x, y=low, y2="step_time_high_s:Q", color=colour)] if bounded.height else []),
        alt.Chart(inline(lines)).mark_line(strokeWidth=1.5).encode(x=x, y=model_y, color=colour, detail="layout:N"),
        alt.Chart(inline(points))
        .mark_point(filled=True, size=46, opacity=1)
        .encode(x=x, y=y, color=colour, tooltip=tooltips),
    ]
    errors = [abs(error) for error in points["left_out_error"].drop_nulls()]
    notes = [f"left out one by one, the model misses by {100 * max(errors):.1f} % at most"] if errors else []
    return Drawn(layers, [*notes, *panel_notes(frame)])


def _data(request: FigureRequest) -> pl.DataFrame:
    frames = []
    for name in request.records.workloads:
        title = workload_label(name)

        def make(name=name, title=title) -> pl.DataFrame:  # type: ignore[no-untyped-def]
            models = step_models_of_records(request.counted, name, request.step_times)
            if not models:
                raise PlanningError("the records have no step times; pass --step-times")
            return step_time_frame(models, f"{title}, ")

        frames.append(rows_or_note(STEP_TIME_CHART_SCHEMA, {"panel": title}, make))
    return pl.concat(frames) if frames else pl.DataFrame(schema=STEP_TIME_CHART_SCHEMA)


KIND = FigureKind(
    "seconds per step against examples per device: measured, and the model of it", _data, plot_step_time, LOOK
)
