"""Charts of laws: batch size and learning rate against tokens with published laws, and loss at fixed tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from batchscale.analysis.budget_optima import find_optima
from batchscale.analysis.grid import best_losses
from batchscale.analysis.laws import Laws
from batchscale.analysis.power_law import LawPrediction, PowerLaw
from batchscale.atlas.published_laws import find_published
from batchscale.figures.axes import LogRange, between_ticks, log_axis, log_range, log_scale
from batchscale.figures.frames import empty_reason
from batchscale.figures.layout import Chart, Drawn, Look, PanelSize, draw_panels, inline
from batchscale.figures.theme import Theme, series_colours
from batchscale.formatting import rounded_text

TITLES: Mapping[str, tuple[str, str]] = {
    "b_opt": ("Batch size of the lowest loss", "B_opt (tokens)"),
    "b_crit": ("Critical batch size", "B_crit (tokens)"),
    "learning_rate": ("Best learning rate", "learning rate"),
}
LAW_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "quantity": pl.String,
    "what": pl.String,  # point, law, published or prediction
    "series": pl.String,  # the model, or the published law
    "parameters": pl.Float64,
    "tokens": pl.Float64,
    "value": pl.Float64,
    "observed": pl.Float64,  # of the best run
    "low": pl.Float64,
    "high": pl.Float64,
    "note": pl.String,
}
TOKENS_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "parameters": pl.Float64,
    "series": pl.String,  # the tokens, as text
    "tokens": pl.Float64,
    "batch_size": pl.Float64,  # in tokens
    "loss": pl.Float64,
    "learning_rate": pl.Float64,
    "is_optimum": pl.Boolean,
    "note": pl.String,
}
LAWS_LOOK = Look(size=PanelSize(330, 300), columns=3)
TOKENS_LOOK = Look(size=PanelSize(290, 240), columns=3)
_ON_A_LINE = 24
PLAN = "your plan"


def law_frame(laws: Laws, predictions: Mapping[str, LawPrediction]) -> pl.DataFrame:
    """Return points, fitted lines, published lines and predictions of every law: a frame of ``LAW_SCHEMA``."""
    rows: list[dict[str, Any]] = []
    for quantity, law in laws.laws.items():
        base = {"panel": TITLES[quantity][0], "quantity": quantity}
        for row in law.points.iter_rows(named=True):
            series = _model(row["parameters"]) if row["parameters"] else row["group"]
            values = {name: row[name] for name in ("parameters", "tokens", "value", "observed")}
            rows.append(base | {"what": "point", "series": series} | values)
        plan = predictions.get(quantity)
        if plan is not None:
            ends = {"tokens": plan.tokens, "value": plan.value, "low": plan.low, "high": plan.high}
            rows.append(base | {"what": "prediction", "series": PLAN, "parameters": plan.parameters} | ends)
        rows += _lines(base, law, plan, laws.unit == "tokens")
    return pl.DataFrame(rows, schema=LAW_SCHEMA)


def _lines(base: Mapping[str, Any], law: PowerLaw, plan: LawPrediction | None, published: bool) -> list[dict[str, Any]]:
    """Return the fitted law of each model (of the plan's too) and published laws over the tokens of points and plan."""
    tokens = [*law.points["tokens"], *([plan.tokens] if plan else [])]
    places = np.geomspace(min(tokens) * 0.8, max(tokens) * 1.25, _ON_A_LINE).tolist()
    models = law.points["parameters"].unique().sort().to_list() if "parameters" in law.names else [None]
    rows = []
    for size in models:
        series = _model(size) if size else "law"
        own = [{"tokens": place, "value": law.predict(place, size).value} for place in places]
        rows += [{**base, "what": "law", "series": series, "parameters": size, **row} for row in own]
    middle = plan.parameters if plan else law.points["parameters"].median()
    for other in find_published(law.quantity) if published else ():
        values = [(place, other.value(place, middle)) for place in places]  # type: ignore[arg-type]
        lines = [{"tokens": place, "value": value} for place, value in values if value is not None]
        rows += [{**base, "what": "published", "series": other.name, **row} for row in lines]
    return rows


def plot_laws(frame: pl.DataFrame, look: Look = LAWS_LOOK) -> Chart:
    """Draw a panel per quantity: points and lines coloured by model size, published laws dashed, the plan as a star."""
    models = frame.filter(pl.col("what").is_in(["point", "law"])).drop_nulls("parameters")
    labels = models.sort("parameters")["series"].unique(maintain_order=True).to_list()
    others = frame.filter(pl.col("what").is_in(["point", "law"]) & pl.col("parameters").is_null())
    labels += [name for name in others["series"].unique(maintain_order=True) if name not in labels and name != "law"]
    return draw_panels(
        frame, lambda part, look: _law_panel(part, look, labels), look, of="laws", goals=False, one_legend=True
    )


def _law_panel(frame: pl.DataFrame, look: Look, labels: Sequence[str]) -> Drawn | str:
    if frame.drop_nulls("value").is_empty():
        return empty_reason(frame)
    theme, quantity = look.theme, frame["quantity"][0]
    parts = {what: frame.filter(pl.col("what") == what) for what in ("point", "law", "published", "prediction")}
    ends = [*frame["value"], *frame["low"].drop_nulls(), *frame["high"].drop_nulls(), *frame["observed"].drop_nulls()]
    x_span = log_range(frame["tokens"], base=10, margin=0.08, least=1.0)
    y_span = log_range(
        ends, base=10 if quantity == "learning_rate" else 2, margin=0.12 if quantity == "learning_rate" else 0.4
    )
    x = alt.X("tokens:Q", scale=log_scale(x_span), axis=_token_axis(x_span))
    y = alt.Y("value:Q", scale=log_scale(y_span), axis=log_axis(TITLES[quantity][1], y_span))
    scale = alt.Scale(domain=list(labels), range=series_colours(theme, len(labels), ordered=True))
    legend = alt.Legend(
        title="parameters", orient="bottom", direction="horizontal", columns=6, titleAnchor="start", symbolOpacity=1
    )
    colour = alt.Color("series:N", sort=None, scale=scale, legend=legend)
    points = alt.Chart(inline(parts["point"]))
    layers = [
        *_published_layers(parts["published"], theme, x, y),
        alt.Chart(inline(parts["law"].filter(pl.col("series").is_in(labels))))
        .mark_line(strokeWidth=1.6, strokeOpacity=0.8)
        .encode(x=x, y=y, color=colour),
        alt.Chart(inline(parts["law"].filter(~pl.col("series").is_in(labels))))
        .mark_line(strokeWidth=2, color=theme.text)
        .encode(x=x, y=y),
        points.mark_point(shape="cross", size=26, opacity=0.55, filled=True).encode(
            x=x, y=alt.Y("observed:Q", scale=log_scale(y_span)), color=colour
        ),
        points.mark_point(filled=True, size=58, opacity=1, stroke=theme.ground, strokeWidth=0.8).encode(
            x=x, y=y, color=colour, tooltip=_law_tooltips()
        ),
        *_plan_layers(parts["prediction"], theme, x, y, y_span),
    ]
    notes = ["points: smoothed optima; crosses: best runs"]
    extra = {"published": "dashed: published laws", "prediction": "diamond: your plan, with its 90 % interval"}
    return Drawn(layers, [*notes, "; ".join(text for what, text in extra.items() if len(parts[what]))])


def _published_layers(lines: pl.DataFrame, theme: Theme, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    if lines.is_empty():
        return []
    ends = lines.sort("tokens").group_by("series", maintain_order=True).agg(pl.all().first())
    words: dict[str, Any] = {"align": "left", "dx": 3, "dy": -6, "fontSize": 9.5}
    text = alt.Chart(inline(ends))
    return [
        alt.Chart(inline(lines))
        .mark_line(strokeDash=[5, 4], strokeWidth=1.3, color=theme.muted, clip=True)
        .encode(x=x, y=y, detail="series:N"),
        text.mark_text(stroke=theme.ground, strokeWidth=3, aria=False, **words).encode(x=x, y=y, text="series:N"),
        text.mark_text(color=theme.muted, **words).encode(x=x, y=y, text="series:N"),
    ]


def _plan_layers(plan: pl.DataFrame, theme: Theme, x: alt.X, y: alt.Y, y_span: LogRange) -> list[alt.Chart]:
    if plan.is_empty():
        return []
    base = alt.Chart(inline(plan))
    return [
        base.mark_rule(strokeWidth=3, color=theme.text, clip=True).encode(
            x=x, y=alt.Y("low:Q", scale=log_scale(y_span)), y2="high:Q"
        ),
        base.mark_point(
            shape="diamond", filled=True, size=150, fill=theme.star, stroke=theme.text, strokeWidth=1.6, opacity=1
        ).encode(x=x, y=y, tooltip=_law_tooltips()),
    ]


def _token_axis(span: LogRange) -> alt.Axis:
    """Return an axis of tokens with labels such as 10 B."""
    label = "replace(replace(replace(format(datum.value, '~s'), 'G', ' B'), 'M', ' M'), 'T', ' T')"
    return alt.Axis(title="tokens", values=between_ticks(span), labelExpr=label, labelOverlap="greedy", tickSize=4)


def iso_token_frame(grid: pl.DataFrame) -> pl.DataFrame:
    """Return the best loss at each batch size and the optimum of each budget, a panel per model: ``TOKENS_SCHEMA``."""
    best = best_losses(grid).with_columns(pl.lit(False).alias("is_optimum"))
    columns = ("parameters", "tokens", "batch_size", "loss", "learning_rate")
    optima = find_optima(grid).drop_nulls("batch_size").select(*columns).with_columns(pl.lit(True).alias("is_optimum"))
    frame = pl.concat([best.select(*columns, "is_optimum"), optima])
    panels = pl.col("parameters").map_elements(lambda size: f"{_model(size)} parameters", return_dtype=pl.String)
    series = pl.col("tokens").map_elements(rounded_text, return_dtype=pl.String)
    frame = frame.with_columns(
        panels.alias("panel"), series.alias("series"), pl.lit(None, dtype=pl.String).alias("note")
    )
    return frame.select(list(TOKENS_SCHEMA)).sort("parameters", "tokens", "batch_size")


def plot_iso_tokens(frame: pl.DataFrame, look: Look = TOKENS_LOOK) -> Chart:
    """Draw a panel per model: loss against batch size, a line per number of tokens, the optimum of each marked."""
    labels = frame.sort("tokens")["series"].unique(maintain_order=True).to_list()
    return draw_panels(
        frame, lambda part, look: _tokens_panel(part, look, labels), look, of="models", goals=False, one_legend=True
    )


def _tokens_panel(frame: pl.DataFrame, look: Look, labels: Sequence[str]) -> Drawn | str:
    theme = look.theme
    x_span = log_range(frame["batch_size"], margin=0.3)
    low, high = float(frame["loss"].min()), float(frame["loss"].quantile(0.97))  # type: ignore[arg-type]
    room = 0.06 * (high - low or 1.0)
    x = alt.X("batch_size:Q", scale=log_scale(x_span), axis=log_axis("batch size (tokens)", x_span, 6))
    y = alt.Y(
        "loss:Q",
        scale=alt.Scale(domain=[low - room, high + room], nice=False, zero=False),
        axis=alt.Axis(title="final loss", tickCount=6),
    )
    scale = alt.Scale(domain=list(labels), range=series_colours(theme, len(labels), ordered=True))
    legend = alt.Legend(title="tokens", orient="bottom", direction="horizontal", columns=8, titleAnchor="start")
    colour = alt.Color("series:N", sort=None, scale=scale, legend=legend)
    lines = alt.Chart(inline(frame.filter(~pl.col("is_optimum"))))
    tooltips = [
        alt.Tooltip("series:N", title="tokens"),
        alt.Tooltip("batch_size:Q", title="batch size (tokens)", format=",.0f"),
        alt.Tooltip("loss:Q", title="final loss", format=".4f"),
        alt.Tooltip("learning_rate:Q", title="learning rate", format=".3g"),
    ]
    layers = [
        lines.mark_line(strokeWidth=1.6, clip=True).encode(x=x, y=y, color=colour, detail="tokens:Q"),
        lines.mark_point(filled=True, size=22, clip=True, opacity=1).encode(x=x, y=y, color=colour, tooltip=tooltips),
        alt.Chart(inline(frame.filter("is_optimum")))
        .mark_point(
            shape="diamond", filled=True, fill=theme.star, stroke=theme.text, size=80, strokeWidth=1.3, opacity=1
        )
        .encode(x=x, y=y, tooltip=tooltips),
    ]
    return Drawn(layers, ["diamonds: B_opt at these tokens"])


def _model(parameters: float) -> str:
    return rounded_text(parameters)


def _law_tooltips() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("series:N", title="model"),
        alt.Tooltip("tokens:Q", title="tokens", format=",.3s"),
        alt.Tooltip("value:Q", title="value", format=",.4~g"),
        alt.Tooltip("low:Q", title="from", format=",.4~g"),
        alt.Tooltip("high:Q", title="to", format=",.4~g"),
    ]
