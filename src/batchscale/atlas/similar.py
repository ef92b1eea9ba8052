"""The public curves most similar to a user's workload or curve, why, and what they suggest for the sizes to measure.

A distance adds up, in doublings: how far apart the critical batch sizes lie, how differently examples to result grow
over the sizes that both have, and fixed amounts for another data set, model, kind of model or optimizer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from batchscale.analysis.summary import CurveSummary
from batchscale.atlas.table import Atlas
from batchscale.errors import AnalysisError
from batchscale.formatting import percent_text, rounded_text, times_text

OTHER_KIND = 2.0
OTHER_MODEL = 0.5
OTHER_DATASET = 0.75
OTHER_OPTIMIZER = 0.5
UNKNOWN_CRITICAL = 2.5  # for a curve without a critical batch size, beside one that has it: about a usual distance
UNKNOWN_SHAPE = 1.5  # for curves that share fewer than three sizes, likewise
UNKNOWN_KIND = "other"  # models whose name does not tell their kind have nothing in common
MOST_APART = 4.0  # doublings: critical batch sizes farther apart are just far apart
SHAPE_WEIGHT = 2.0
FEWEST_SHARED = 3  # sizes of one curve inside the other's range
SCALING_ENDS_AT = 8  # perfect scaling is visible this factor below B_crit, and the floor this factor above


@dataclass(frozen=True)
class OwnCurve:
    """A user's workload, and its curve if it was measured; empty names where they are not known."""

    dataset: str = ""
    model: str = ""
    optimizer: str = ""
    kind: str = ""
    summary: CurveSummary | None = None


@dataclass(frozen=True)
class Neighbour:
    """A row of the atlas, its distance and the reasons, as text."""

    row: dict[str, Any]
    distance: float
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Prior:
    """What neighbours suggest: the range of their critical batch sizes, and the sizes that would show yours.

    ``useful_high`` is the largest useful batch size of all of them; None if one was not measured that far.
    """

    b_crit: float | None
    b_crit_low: float | None
    b_crit_high: float | None
    batch_sizes: tuple[int, ...]
    useful_high: int | None
    batch_units: tuple[str, ...]


def find_similar(atlas: Atlas, own: OwnCurve, count: int = 6) -> list[Neighbour]:
    """Return the nearest curves, one per workload and source, nearest first.

    Raises:
        AnalysisError: Neither a curve nor any name of the workload is known.
    """
    if own.summary is None and not (own.kind.replace(UNKNOWN_KIND, "") or own.model or own.dataset):
        raise AnalysisError("To find similar curves, a curve of two sizes or more, a model or a kind must be given.")
    points = {str(key[0]): rows for key, rows in atlas.points().group_by("curve")}
    neighbours = [_compare(row, points.get(row["curve"]), own) for row in atlas.curves.iter_rows(named=True)]
    nearest: dict[tuple[str, ...], Neighbour] = {}
    for neighbour in sorted(neighbours, key=lambda item: (item.distance, not item.row["main"])):
        nearest.setdefault(tuple(neighbour.row[name] for name in ("source", "label", "optimizer")), neighbour)
    return list(nearest.values())[:count]


def make_prior(neighbours: Sequence[Neighbour]) -> Prior:
    """Return what neighbours suggest; their critical batch sizes count less with growing distance."""
    rows = [(item.row, math.exp(-item.distance)) for item in neighbours]
    critical = [(math.log(row["b_crit"]), weight) for row, weight in rows if row["b_crit"]]
    units = tuple(dict.fromkeys(row["batch_unit"] for row, _ in rows))
    is_known = all(row["max_useful_reached"] for row, _ in rows)
    highest = max((row["max_useful_batch_size"] for row, _ in rows), default=None) if is_known else None
    if not critical:
        return Prior(None, None, None, (), highest, units)
    logs, weights = (np.array(values) for values in zip(*critical, strict=True))
    mean = float(np.exp((logs * weights).sum() / weights.sum()))
    low, high = float(np.exp(logs.min())), float(np.exp(logs.max()))
    first = max(0, math.floor(math.log2(low / SCALING_ENDS_AT)))
    last = math.ceil(math.log2(high * SCALING_ENDS_AT))
    spacing = 1 if last - first <= 7 else 2
    sizes = tuple(2**power for power in range(first, last + 1, spacing))
    return Prior(mean, low, high, sizes, highest, units)


def prior_sentences(prior: Prior) -> list[str]:
    """Return what neighbours suggest, as sentences."""
    if prior.b_crit is None:
        return ["None of them has a critical batch size, so they suggest no sizes."]
    sizes = ", ".join(f"{size:,}" for size in prior.batch_sizes)
    low, high = rounded_text(prior.b_crit_low), rounded_text(prior.b_crit_high)
    sentences = [
        f"Their critical batch sizes: about {rounded_text(prior.b_crit)} (from {low} to {high}).",
        f"Batch sizes that would show yours, if it is like them: {sizes}.",
    ]
    if prior.useful_high is not None:
        sentences.append(f"Beyond a batch size of {prior.useful_high:,} none of them saved another 20 % of the steps.")
    if len(prior.batch_units) > 1:
        sentences.append(f"They count batches in different things: {', '.join(prior.batch_units)}.")
    return sentences


def _compare(row: dict[str, Any], points: pl.DataFrame | None, own: OwnCurve) -> Neighbour:
    distance, reasons = 0.0, []
    for name, label, cost in (
        ("dataset", "data set", OTHER_DATASET),
        ("model", "model", OTHER_MODEL),
        ("optimizer", "optimizer", OTHER_OPTIMIZER),
    ):
        mine, other = getattr(own, name), row[name]
        if mine and mine == other:
            reasons.append(f"same {label}")
        elif mine:
            distance += cost
    kind = "" if own.kind == UNKNOWN_KIND else own.kind
    if kind and kind == row["kind"]:
        reasons += [] if "same model" in reasons else [f"{kind} too"]
    elif kind:
        distance += OTHER_KIND
    if own.summary is not None:
        for part, reason in (_critical_distance(row, own.summary), _shape_distance(points, own.summary)):
            distance += part
            reasons += [reason] if reason else []
    return Neighbour(row, distance, tuple(reasons))


def _critical_distance(row: dict[str, Any], summary: CurveSummary) -> tuple[float, str]:
    """Return how many doublings two critical batch sizes are apart, less where their intervals overlap."""
    mine, other = summary.critical.value, row["b_crit"]
    if mine is None or other is None:
        return UNKNOWN_CRITICAL if mine is not None else 0.0, ""
    apart = abs(math.log2(other / mine))
    low, high = summary.critical.low, summary.critical.high
    overlap = low is not None and high is not None and (row["b_crit_low"] or other) <= high
    overlap = overlap and (row["b_crit_high"] or other) >= (low or mine)
    ratio = max(other / mine, mine / other)
    if overlap:
        return min(apart, MOST_APART) / 2, f"B_crit {rounded_text(other)}, within your interval"
    relation = "larger" if other > mine else "smaller"
    return min(apart, MOST_APART), f"B_crit {rounded_text(other)}, {times_text(ratio)} times {relation}"


def _shape_distance(points: pl.DataFrame | None, summary: CurveSummary) -> tuple[float, str]:
    """Return the root mean square, in doublings, of the difference in the growth of examples over shared sizes."""
    mine = np.array([(math.log2(p.batch_size), math.log2(p.batch_size * (p.steps.value or 1))) for p in summary.points])
    if points is None or len(mine) < FEWEST_SHARED:
        return UNKNOWN_SHAPE, ""
    sizes = np.log2(points["batch_size"].to_numpy().astype(np.float64))
    examples = sizes + np.log2(points["steps"].to_numpy())
    shared = mine[(mine[:, 0] >= sizes[0]) & (mine[:, 0] <= sizes[-1])]
    if len(shared) < FEWEST_SHARED:
        return UNKNOWN_SHAPE, ""
    difference = shared[:, 1] - np.interp(shared[:, 0], sizes, examples)
    rms = float(np.sqrt(np.mean((difference - difference.mean()) ** 2)))
    text = f"same shape within {percent_text(2**rms - 1)}" if rms < 0.5 else ""
    uncovered = 1 - len(shared) / len(mine)
    return SHAPE_WEIGHT * min(rms, 2.0) + UNKNOWN_SHAPE * uncovered, text
