"""The curves of the atlas in one picture, each over its own critical batch size, with a user's own on top."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from batchscale.analysis.curve_analysis import Analysis, analyze
from batchscale.atlas.table import Atlas, read_atlas
from batchscale.errors import BatchscaleError
from batchscale.figures.axes import LogRange, log_axis, log_range, log_scale
from batchscale.figures.frames import EDGE, empty_reason, note_frame, panel_notes, with_edges, workload_values
from batchscale.figures.kind import FigureKind, FigureRequest
from batchscale.figures.layout import Chart, Drawn, Look, PanelSize, draw_panels, inline, legend_below
from batchscale.figures.names import workload_label
from batchscale.figures.theme import Theme
from batchscale.formatting import count_text

TITLE = "Every public curve over its own critical batch size"
YOURS = "yours"
GROUPS: Mapping[str, str] = {
    "language model": "language models",
    "transformer": "other Transformers",
    "convolutional": "convolutional",
    "fully connected": "fully connected",
    "recurrent": "recurrent",
    "detection": "detection, segmentation",
    "segmentation": "detection, segmentation",
    "diffusion": "diffusion",
}
OTHERS = "other"
ATLAS_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "series": pl.String,  # a group of kinds of models, or the user's own
    "curve": pl.String,
    "label": pl.String,
    "source": pl.String,
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "goal": pl.String,
    "batch_size": pl.Int64,
    "steps": pl.Float64,
    "b_crit": pl.Float64,
    "ratio": pl.Float64,  # batch size over B_crit
    "value": pl.Float64,  # steps over those at B_crit
    EDGE: pl.String,
    "note": pl.String,
}
LOOK = Look(size=PanelSize(720, 430), columns=1)


def group_colours(labels: Sequence[str], theme: Theme) -> list[str]:
    """Return the colour of each group, the same in every chart."""
    fixed = dict(zip(dict.fromkeys(GROUPS.values()), theme.series, strict=False))
    return [{YOURS: theme.text, OTHERS: theme.poor}.get(label) or fixed[label] for label in labels]


def group_of(kind: str) -> str:
    """Return the group of a kind of model in a legend."""
    return GROUPS.get(kind, OTHERS)


def atlas_frame(atlas: Atlas, own: Sequence[Analysis] = ()) -> pl.DataFrame:
    """Return the points of every curve with a bounded critical batch size, and of own analyses, over theirs.

    Args:
        atlas: The curves to draw.
        own: The user's curves.
    """
    points = {str(key[0]): rows for key, rows in atlas.points().group_by("curve")}
    names = ("curve", "label", "source", "dataset", "model", "optimizer", "goal", "b_crit")
    frames = [
        _scaled(
            points[row["curve"]],
            {name: row[name] for name in names}
            | {"series": YOURS if row["source"] == "own" else group_of(row["kind"])},
        )
        for row in atlas.curves.drop_nulls(["b_crit", "b_crit_low", "b_crit_high"]).iter_rows(named=True)
    ]
    lacking = len(atlas.curves) - len(frames)
    if lacking:
        note = f"left out: {count_text(lacking, 'curve')} whose critical batch size is not bounded on both sides"
        frames.append(note_frame(ATLAS_SCHEMA, note, panel=TITLE))
    frames += [_own_points(answer) for answer in own]
    return pl.concat(frames) if frames else pl.DataFrame(schema=ATLAS_SCHEMA)


def _own_points(answer: Analysis) -> pl.DataFrame:
    name = answer.workload
    label = workload_label(name) if name else "your curve"
    values: dict[str, object] = {"label": label, "curve": label, "source": "own", "series": YOURS}
    values |= {"goal": answer.goal and str(answer.goal), **(workload_values(name) if name else {})}
    critical = None if answer.summary is None else answer.summary.critical.value
    reached = answer.curve.drop_nulls("steps").select("batch_size", pl.col("steps").cast(pl.Float64))
    if critical is not None:
        return _scaled(reached, values | {"b_crit": critical})
    note = note_frame(ATLAS_SCHEMA, f"{label} has no critical batch size to draw it over", panel=TITLE)
    rows = [values | {"panel": TITLE, "batch_size": size, "steps": steps} for size, steps in reached.rows()]
    return pl.concat([pl.DataFrame(rows, schema=ATLAS_SCHEMA), note])


def _scaled(points: pl.DataFrame, values: Mapping[str, object]) -> pl.DataFrame:
    critical = float(values["b_crit"])  # type: ignore[arg-type]
    at_critical = steps_at(critical, points["batch_size"].to_numpy(), points["steps"].to_numpy())
    frame = points.select(
        pl.lit(TITLE).alias("panel"),
        *(pl.lit(value).alias(name) for name, value in values.items()),
        "batch_size",
        "steps",
        (pl.col("batch_size") / critical).alias("ratio"),
        (pl.col("steps") / at_critical).alias("value"),
    )
    missing = [pl.lit(None).alias(name) for name in ATLAS_SCHEMA if name not in frame.columns]
    return frame.with_columns(missing).select(pl.col(name).cast(kind) for name, kind in ATLAS_SCHEMA.items())


def steps_at(batch_size: float, sizes: np.ndarray, steps: np.ndarray) -> float:
    """Return the steps at a size: between two points along a line in logarithms, outside by the hyperbola there.

    >>> round(steps_at(8.0, np.array([4.0, 16.0]), np.array([100.0, 25.0])), 6)
    50.0
    """
    end = float(np.clip(batch_size, sizes[0], sizes[-1]))
    inside = math.exp(float(np.interp(math.log(end), np.log(sizes), np.log(steps))))
    return inside * 2 / (1 + batch_size / end)  # S(B)/S(B_crit) = (1 + B_crit/B)/2


def plot_atlas(frame: pl.DataFrame, look: Look = LOOK) -> Chart:
    """Draw all curves over their critical batch sizes, coloured by the kind of model, the user's own in front."""
    return draw_panels(frame, _panel, look, of="curves", goals=False)


def _panel(frame: pl.DataFrame, look: Look) -> Drawn | str:
    points = frame.drop_nulls("value")
    if points.is_empty():
        return empty_reason(frame)
    theme = look.theme
    mine = points.filter(pl.col("series") == YOURS)
    others = points.filter(pl.col("series") != YOURS)
    x_span, y_span = log_range(points["ratio"], margin=0.4), log_range(points["value"], margin=0.4)
    x = alt.X("ratio:Q", scale=log_scale(x_span), axis=log_axis("batch size ÷ its critical batch size", x_span, 9))
    y = alt.Y("value:Q", scale=log_scale(y_span), axis=log_axis("steps to result ÷ those at B_crit", y_span))
    counts = others.group_by("series").agg(pl.col("curve").n_unique()).sort("curve", "series", descending=True)
    labels = [name for name in counts["series"] if name != OTHERS] + [OTHERS] * (OTHERS in counts["series"])
    colours = group_colours(labels, theme)
    legend = legend_below() if len(labels) > 1 else None
    colour = alt.Color("series:N", sort=None, scale=alt.Scale(domain=labels, range=colours), legend=legend)
    layers = [*_regimes(theme, x, x_span, y_span)]
    if len(others):
        base = alt.Chart(inline(others))
        layers += [
            base.mark_line(strokeWidth=1.3, strokeOpacity=0.42, clip=True).encode(
                x=x, y=y, color=colour, detail="curve:N"
            ),
            base.mark_point(filled=True, size=20, opacity=0.75, clip=True).encode(
                x=x, y=y, color=colour, tooltip=_tooltips()
            ),
        ]
    layers += _own_layers(mine, theme, x, y)
    drawn = others["curve"].n_unique()
    notes = [f"{count_text(drawn, 'curve')}; the dashed line is S_min (1 + B_crit/B)"]
    return Drawn(layers, [*notes, *panel_notes(frame)])


def _own_layers(mine: pl.DataFrame, theme: Theme, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    if mine.is_empty():
        return []
    base = alt.Chart(inline(mine))
    ends = inline(mine.group_by("curve", maintain_order=True).agg(pl.all().first()))
    words: dict[str, Any] = {"align": "left", "dx": 13, "dy": -7, "fontSize": 12.5, "fontWeight": 600}
    return [
        base.mark_line(strokeWidth=7, stroke=theme.ground, aria=False).encode(x=x, y=y, detail="curve:N"),
        base.mark_line(strokeWidth=3.4, stroke=theme.text).encode(x=x, y=y, detail="curve:N"),
        base.mark_point(filled=True, size=90, fill=theme.star, stroke=theme.text, strokeWidth=1.6, opacity=1).encode(
            x=x, y=y, tooltip=_tooltips()
        ),
        alt.Chart(ends)
        .mark_text(stroke=theme.ground, strokeWidth=4, strokeJoin="round", aria=False, **words)
        .encode(x=x, y=y, text="label:N"),
        alt.Chart(ends).mark_text(color=theme.text, **words).encode(x=x, y=y, text="label:N"),
    ]


def _regimes(theme: Theme, x: alt.X, x_span: LogRange, y_span: LogRange) -> list[alt.Chart]:
    """Return the shaded grounds of perfect scaling and no gain, and the hyperbola that most curves follow."""
    low, high = x_span.domain
    top, floor = y_span.domain[1], y_span.domain[0]
    ratios = np.geomspace(low, high, 120)
    law = [{"ratio": float(ratio), "value": float((1 + 1 / ratio) / 2)} for ratio in ratios]
    scale = alt.Y("value:Q", scale=log_scale(y_span))
    grounds = [(low, 1 / 8, theme.shade[0], "perfect scaling"), (8, high, theme.shade[1], "no gain")]
    layers: list[alt.Chart] = []
    for start, end, colour, text in grounds:
        if end <= start:
            continue
        middle = math.sqrt(start * end)
        rectangle = alt.Chart(alt.InlineData(values=[{"ratio": start, "to": end}]))
        layers.append(rectangle.mark_rect(color=colour, opacity=0.8, aria=False).encode(x=x, x2="to:Q"))
        words = alt.Chart(
            alt.InlineData(values=[{"ratio": middle, "value": top / (top / floor) ** 0.04, "text": text}])
        )
        layers.append(
            words.mark_text(color=theme.muted, fontSize=12, fontStyle="italic", baseline="top").encode(
                x=x, y=scale, text="text:N"
            )
        )
    line = alt.Chart(alt.InlineData(values=law)).mark_line(
        color=theme.muted, strokeDash=[6, 5], strokeWidth=1.8, clip=True, aria=False
    )
    return [*layers, line.encode(x=x, y=scale)]


def _tooltips() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("label:N", title="curve"),
        alt.Tooltip("source:N", title="source"),
        alt.Tooltip("goal:N", title="goal"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("b_crit:Q", title="B_crit", format=",.0f"),
    ]


def own_analyses(request: FigureRequest) -> tuple[list[Analysis], list[str]]:
    """Return the analyses of the records of a request, and the reasons for missing ones."""
    answers: list[Analysis] = []
    reasons = [] if request.counted.workloads else ["there are no curves of yours to draw"]
    for name in request.counted.workloads:
        try:
            answers.append(analyze(request.counted, name, request.goal))
        except BatchscaleError as error:
            reasons.append(str(error))
    return answers, reasons


def _data(request: FigureRequest) -> pl.DataFrame:
    answers, reasons = own_analyses(request)
    atlas = read_atlas()
    frame = atlas_frame(atlas.select(atlas.curves.filter("main")), answers)
    mine = frame.filter((pl.col("source") == "own") & pl.col("batch_size").is_not_null() & (pl.col("series") == YOURS))
    marked = with_edges(mine.drop(EDGE), request.counted, request.goal) if len(mine) else mine
    rest = frame.join(mine.select("curve"), on="curve", how="anti", nulls_equal=False)
    notes = [note_frame(ATLAS_SCHEMA, reason, panel=TITLE) for reason in reasons]
    return pl.concat([rest, marked.select(list(ATLAS_SCHEMA)), *notes])


KIND = FigureKind(
    "your curves in front of the atlas, each over its own critical batch size",
    _data,
    lambda frame, look: plot_atlas(frame, replace(look, size=LOOK.size)),
    LOOK,
)
