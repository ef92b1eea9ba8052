"""Reasons to trust a curve less, in words: what is missing, at an edge, still moving, or measured too coarsely."""

import math

import polars as pl

from batchscale.analysis.summary import COARSE
from batchscale.analysis.wording import list_sizes
from batchscale.records.summary import EDGE_WORDS

RESOLVED = 20  # evaluations up to the goal that leave the steps open by a twentieth


def study_doubts(curve: pl.DataFrame) -> tuple[str, ...]:
    """The doubts about a curve with the columns of ``ANALYSIS_SCHEMA``."""
    reached = pl.col("steps").is_not_null()
    doubts = []
    missing = _sizes(curve, ~reached)
    if missing:
        doubts.append(f"no trial reached the goal at batch size {list_sizes(missing)}")
    edge = _sizes(curve, pl.col("at_edge").fill_null(False))
    if edge:
        doubts.append(
            f"the best trial lies {EDGE_WORDS} at batch size {list_sizes(edge)}, so a wider search may find fewer steps"
        )
    moving = _sizes(curve, pl.col("still_moves").fill_null(False) & reached)
    if moving:
        doubts.append(f"more trials would likely still move batch size {list_sizes(moving)}")
    return (*doubts, *resolution_doubts(curve))


def resolution_doubts(curve: pl.DataFrame) -> tuple[str, ...]:
    """Which points the evaluation plan leaves open by more than a fifth, and the plan that would resolve them."""
    coarse = curve.filter((pl.col("steps") > 0) & (pl.col("spacing") > COARSE * pl.col("steps"))).sort("batch_size")
    if coarse.is_empty():
        return ()
    sizes = coarse["batch_size"].to_list()
    first = coarse.filter(pl.col("spacing") >= pl.col("steps"))["batch_size"].to_list()
    fewest = int(coarse["steps"].min() or 1)  # type: ignore[arg-type] # whole numbers
    every = max(math.ceil(fewest / RESOLVED), 1)
    what = "the steps are known only to within their evaluation spacing at batch size " + list_sizes(sizes)
    if first:
        what += f" (at {list_sizes(first)} the first measurement had reached the goal already)"
    return (f"{what}: measure with [evaluation] every = {every} there",)


def run_doubts(curve: pl.DataFrame) -> tuple[str, ...]:
    """The doubts about repeated runs (columns ``batch_size``, ``steps``, null where a run did not reach the goal)."""
    lost = curve.filter(pl.col("steps").is_null())["batch_size"].unique().sort()
    reached = set(curve.drop_nulls("steps")["batch_size"].to_list())
    never = [int(size) for size in lost if size not in reached]
    some = [int(size) for size in lost if size in reached]
    doubts = []
    if never:
        doubts.append(f"the goal was not reached at batch size {list_sizes(never)}")
    if some:
        doubts.append(f"runs that did not reach the goal are left out at batch size {list_sizes(some)}")
    return tuple(doubts)


def _sizes(curve: pl.DataFrame, condition: pl.Expr) -> list[int]:
    return [int(size) for size in curve.filter(condition).sort("batch_size")["batch_size"]]
