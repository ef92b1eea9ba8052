"""The places of trials that reached the goal in their search ranges (Figures 13 and 14).

A panel per metaparameter, a lane per batch size. Every lane is its study's own range, from end to end on the scale it
was sampled in, so that a star near an end shows a space that should be searched again.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import polars as pl

from batchscale.analysis.outcomes import Outcome, trial_outcomes
from batchscale.figures.frames import (
    EDGE,
    NOT_REACHED,
    WORKLOAD_SCHEMA,
    MissingDataError,
    empty_reason,
    find_studies,
    literals,
    panel_notes,
    rows_or_note,
    with_edges,
    workload_values,
)
from batchscale.figures.kind import FigureKind, FigureRequest
from batchscale.figures.kinds.map import BEST, OUTCOME_WORDS, OUTCOMES, outcome_scales, outcome_words
from batchscale.figures.layout import Chart, Drawn, Look, PanelSize, draw_panels, inline, legend_below
from batchscale.figures.names import count, differing_labels, metaparameter_label, workload_label
from batchscale.figures.theme import Theme
from batchscale.formatting import metaparameter_text, span_text
from batchscale.records.frames import Records, searched_spaces
from batchscale.records.metadata.columns import METADATA
from batchscale.search.edge_guard import DEFAULT_MARGIN, near_distance
from batchscale.search.points import to_unit
from batchscale.spec.goal import Goal
from batchscale.spec.space import ParameterConfig
from batchscale.spec.workload_name import WorkloadName

LOOK = Look(columns=2)
LANE = 22  # points of height for a batch size

SPACE_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    **WORKLOAD_SCHEMA,
    "goal": pl.String,
    "metaparameter": pl.String,
    "batch_size": pl.Int64,
    "low": pl.Float64,  # ends of the range (or of the feasible points)
    "high": pl.Float64,
    "discrete": pl.Boolean,
    "trial_id": pl.Int64,
    "value": pl.Float64,
    "unit": pl.Float64,  # where the value lies in its range, 0 to 1 on the range's own scale
    "outcome": pl.String,
    "steps_to_goal": pl.Int64,
    "best": pl.Boolean,
    "near": pl.Float64,  # the distance from an end within which a best trial counts as near, as a share of the range
    "note": pl.String,
}


@dataclass(frozen=True)
class SpaceSelection:
    """A workload and goal whose search spaces are drawn, and the number of first COMPLETE trials that count."""

    workload: WorkloadName
    goal: Goal
    first_trials: int | None = None


def space_frame(records: Records, question: SpaceSelection) -> pl.DataFrame:
    """Return the place of every trial in every range of its study: a frame of ``SPACE_SCHEMA``."""
    frame = with_edges(_rows(records, question), records, question.goal, question.first_trials)
    ends = pl.lit(", ") + pl.col(EDGE)
    of_this_range = ends.str.contains(pl.lit(", ") + pl.col("metaparameter") + pl.lit(" "), literal=True)
    flagged = frame.with_columns(pl.when(of_this_range).then(pl.col(EDGE)).alias(EDGE))
    margins = _margins(records, question.workload)
    near = pl.struct("batch_size", pl.col("unit").count().over("metaparameter", "batch_size").alias("trials"), EDGE)
    return flagged.with_columns(
        near.map_elements(
            lambda lane: near_distance(
                lane["trials"], margins.get(lane["batch_size"], DEFAULT_MARGIN), at_edge=lane[EDGE] is not None
            ),
            return_dtype=pl.Float64,
        ).alias("near")
    )


def _margins(records: Records, workload: WorkloadName) -> dict[int, float]:
    """Return the margins of the studies that have one recorded, by batch size."""
    studies = records.workload(workload).studies
    rows = studies.select("batch_size", pl.col(METADATA).struct.field("edge_margin").alias("margin")).drop_nulls()
    return dict(rows.iter_rows())


def _rows(records: Records, question: SpaceSelection) -> pl.DataFrame:
    name = question.workload
    panel_values = {"panel": workload_label(name), "goal": str(question.goal), **workload_values(name)}

    def make() -> pl.DataFrame:
        selected = find_studies(records, name, first_trials=question.first_trials)
        outcomes = _with_best(trial_outcomes(selected, question.goal).filter(pl.col("outcome").is_in(OUTCOMES)))
        frames = [
            _range_frame(outcomes.filter(pl.col("batch_size") == size), config)
            for (*_, size), spaces in sorted(searched_spaces(selected).items())
            for config in spaces[-1]
        ]
        frames = [frame for frame in frames if not frame.is_empty()]
        if not frames:
            raise MissingDataError("no trials with tuned metaparameters")
        joined = pl.concat(frames).with_columns(*literals(workload_values(name)))
        return joined.sort("metaparameter", "batch_size", "trial_id", maintain_order=True)

    return rows_or_note(SPACE_SCHEMA, panel_values, make)


def plot_space(frame: pl.DataFrame, look: Look = LOOK) -> Chart:
    """Draw a panel per metaparameter, with a lane per batch size; the height of the look is not used."""
    outcomes = outcome_words(frame.drop_nulls("unit"))
    return draw_panels(frame, lambda part, look: _panel(part, look, outcomes), look, one_legend=True)


def _with_best(outcomes: pl.DataFrame) -> pl.DataFrame:
    reached = pl.col("outcome") == Outcome.REACHED.value
    rank = pl.struct("steps_to_goal", "trial_id").rank("ordinal").over("batch_size", "outcome")
    missing = pl.when(~reached.any().over("batch_size")).then(pl.lit(NOT_REACHED))
    return outcomes.with_columns((reached & (rank == 1)).alias("best"), missing.alias("note"))


def _range_frame(trials: pl.DataFrame, config: ParameterConfig) -> pl.DataFrame:
    if config.name not in trials.columns or trials.is_empty():
        return pl.DataFrame(schema=SPACE_SCHEMA)
    recorded = trials.filter(pl.col(config.name).is_not_null())
    values = recorded[config.name].to_list()
    points = config.feasible_points
    low, high = (min(points), max(points)) if points else (config.min_value, config.max_value)
    units = [_unit(config, value) for value in values]
    return recorded.with_columns(
        pl.lit(metaparameter_label(config.name)).alias("panel"),
        pl.lit(config.name).alias("metaparameter"),
        pl.lit(low).alias("low"),
        pl.lit(high).alias("high"),
        pl.lit(bool(points)).alias("discrete"),
        pl.col(config.name).alias("value"),
        pl.Series("unit", units, dtype=pl.Float64),
        pl.lit(None, dtype=pl.Float64).alias("near"),
    ).select(pl.col(name).cast(kind) for name, kind in SPACE_SCHEMA.items())


def _unit(config: ParameterConfig, value: float) -> float | None:
    """Return the place of a value in its range; None outside of it (a trial of an earlier search in another space)."""
    if not config.contains(value) and not config.feasible_points:
        return None
    if config.feasible_points:
        points = sorted(config.feasible_points)
        return (points.index(value) + 0.5) / len(points) if value in points else None
    return to_unit(config, value)


def _panel(frame: pl.DataFrame, look: Look, outcomes: Sequence[str]) -> Drawn | str:
    theme, width = look.theme, look.size.width
    sizes = frame["batch_size"].drop_nulls().unique().sort().to_list()
    notes = panel_notes(frame)
    points = frame.drop_nulls("unit")
    if points.is_empty():
        return empty_reason(frame, "no trial lies in the range")
    outside = frame["unit"].null_count()
    if outside:
        notes.append(f"outside this range and not drawn: {count(outside, 'trial')} of an earlier search")
    lanes = [f"{size:,}" for size in sizes]
    lane = pl.col("batch_size").map_elements(lambda b: f"{b:,}", return_dtype=pl.String).alias("lane")
    best = pl.when("best").then(pl.lit(BEST)).otherwise(pl.col("outcome").replace(OUTCOME_WORDS))
    words = points.with_columns(lane, best.alias("outcome"))
    y = alt.Y(
        "lane:N",
        sort=lanes,
        scale=alt.Scale(domain=lanes),
        axis=alt.Axis(title="batch size", grid=True, ticks=False, labelFlush=False),
    )
    axis = alt.Axis(labels=False, ticks=False, grid=False, title="search range, end to end")
    if points["discrete"].all():  # each value has its place, whatever else a lane's study may choose from
        values = points["value"].unique().sort().to_list()
        places = {value: (place + 0.5) / len(values) for place, value in enumerate(values)}
        words = words.with_columns(pl.col("value").replace_strict(places, return_dtype=pl.Float64).alias("unit"))
        texts = [metaparameter_text(value) for value in values]
        label = f"{json.dumps(texts)}[round(datum.value * {len(values)} - 0.5)]"
        axis = alt.Axis(values=list(places.values()), labelExpr=label, grid=False, tickSize=4, title="value")
    x = alt.X("unit:Q", scale=alt.Scale(domain=[-0.02, 1.02], nice=False), axis=axis)
    colour, shape = outcome_scales(theme, outcomes, legend_below())
    marks = _marks(words, x, y, colour, shape, theme)
    return Drawn([*_ends(words, x, y, theme, width), *marks], notes, PanelSize(width, LANE * len(sizes)))


def _marks(
    words: pl.DataFrame, x: alt.X, y: alt.Y, colour: alt.Color, shape: alt.Shape, theme: Theme
) -> list[alt.Chart]:
    tips = [
        alt.Tooltip("lane:N", title="batch size"),
        alt.Tooltip("trial_id:Q", title="trial"),
        alt.Tooltip("value:Q", title="value", format=".5g"),
        alt.Tooltip("outcome:N", title="outcome"),
        alt.Tooltip("steps_to_goal:Q", title="steps to goal", format=","),
    ]
    order = pl.col("outcome").replace_strict({OUTCOME_WORDS["reached"]: 1, BEST: 2}, default=0, return_dtype=pl.Int64)
    ordered = words.sort(order, maintain_order=True)
    others = alt.Chart(inline(ordered.filter(~pl.col("best"))))
    stars = alt.Chart(inline(ordered.filter("best")))
    encoding = {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tips}
    return [
        others.mark_point(size=16, filled=True, opacity=1, fillOpacity=0.8).encode(**encoding),
        stars.mark_point(size=120, filled=True, stroke=theme.text, strokeWidth=0.8, opacity=1).encode(**encoding),
    ]


def _ends(words: pl.DataFrame, x: alt.X, y: alt.Y, theme: Theme, width: int) -> list[alt.Chart]:
    """Return the margins where a star means trouble, and the ends of each lane's range in numbers."""
    ranges = words.group_by("lane", maintain_order=True).first()
    layers = []
    if not words["discrete"].any():
        ends = pl.concat(
            ranges.select("lane", low.alias("unit"), high.alias("until"))
            for low, high in ((pl.lit(0.0), pl.col("near")), (1 - pl.col("near"), pl.lit(1.0)))
        )
        bands = alt.Chart(inline(ends)).mark_bar(color=theme.shade[1], size=LANE - 2, aria=False)
        layers = [bands.encode(y=y, x=x, x2="until:Q")]
    limits = pl.struct("low", "high").map_elements(lambda e: range_text(e["low"], e["high"]), return_dtype=pl.String)
    text = alt.Chart(inline(ranges.with_columns(limits.alias("text"))))
    layers.append(
        text.mark_text(align="left", fontSize=9.5, color=theme.muted, aria=False).encode(
            y=y, x=alt.value(width + 5), text="text:N"
        )
    )
    return layers


def range_text(low: float, high: float) -> str:
    """Return a range as text, with enough digits to distinguish its ends from each other and from one.

    >>> range_text(0.9, 0.9999), range_text(1e-5, 0.1), range_text(8500, 3.7e6)
    ('0.9 to 0.9999', '1e-05 to 0.1', '8,500 to 3.7 M')
    """
    return span_text(low, high, _value_text)


def _value_text(value: float) -> str:
    """Return a metaparameter as text; large ones without exponents."""
    if value >= 1e6 and value < 1e12:
        scaled, unit = (value / 1e9, "G") if value >= 1e9 else (value / 1e6, "M")
        return f"{scaled:.3g} {unit}"
    return f"{value:,.0f}" if 1000 <= value < 1e6 and value == int(value) else metaparameter_text(value)


def _data(request: FigureRequest) -> pl.DataFrame:
    names = differing_labels(request.records.workloads)
    frames = [
        space_frame(request.records, SpaceSelection(name, request.goal, request.first_trials)).with_columns(
            (pl.lit(f"{label}: " if len(names) > 1 else "") + pl.col("panel")).alias("panel")
        )
        for name, label in names.items()
    ]
    return pl.concat(frames) if frames else pl.DataFrame(schema=SPACE_SCHEMA)


KIND = FigureKind("where in their search ranges the trials lie that reached the goal", _data, plot_space, LOOK)
