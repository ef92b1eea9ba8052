"""The three plain sentences that a practitioner acts on: up to where, from where not, and how much to believe it."""

from batchscale.analysis.analyze import Analysis
from batchscale.analysis.intervals import BoundaryIntervals
from batchscale.analysis.regimes import Regimes


def scaling_sentences(found: Regimes, intervals: BoundaryIntervals | None = None) -> tuple[str, str]:
    """Where perfect scaling ends, and where more data parallelism buys nothing."""
    end, useful = found.perfect_scaling_end, found.max_useful_batch_size
    span = "" if intervals is None else _span(intervals.perfect_scaling_end.low, intervals.perfect_scaling_end.high)
    first = (
        f"Up to batch size {end:,}{span} steps fall in proportion: train with at least that many examples a step if "
        "your hardware can, it costs no extra computation."
    )
    if end <= found.smallest_batch_size:
        first = (
            f"Already from the smallest batch size measured, {found.smallest_batch_size:,}{span}, steps fall by less "
            "than in proportion: every larger batch costs extra computation."
        )
    if not found.max_useful_reached:
        return first, (
            f"Steps still fell at the largest batch size measured ({useful:,}): larger ones may train faster still; "
            "measure them before you decide against more hardware."
        )
    return first, f"Beyond batch size {useful:,} more data parallelism buys next to nothing: do not pay for it."


def critical_sentence(found: Regimes, intervals: BoundaryIntervals | None = None) -> str:
    """The critical batch size as a price: what it costs to go faster."""
    if found.fit is None:
        return found.fit_refusal or "There is no scaling fit."
    critical = found.fit.b_crit
    span = "" if intervals is None else _span(intervals.b_crit.low, intervals.b_crit.high)
    overhead = float(found.fit.best.steps(critical)[0] * critical / found.fit.e_min)
    return (
        f"At the critical batch size, {_round(critical)}{span}, training takes {overhead:.1f} times the least steps "
        f"and {overhead:.1f} times the least examples: well beyond it, each step saved costs dearly."
    )


def three_sentences(answer: Analysis) -> tuple[str, str, str]:
    """What to do, for one analysed workload."""
    if answer.regimes is None:
        return (
            answer.refusal or "There are too few points.",
            "Nothing can be said about where scaling ends.",
            belief_sentence(answer),
        )
    first, second = scaling_sentences(answer.regimes, answer.intervals)
    return first, second, belief_sentence(answer)


def belief_sentence(answer: Analysis) -> str:
    """How much to believe the curve, and what would help most."""
    curve = answer.curve
    doubts = []
    missing = curve.filter(curve["steps"].is_null())["batch_size"].to_list()
    if missing:
        doubts.append(f"no trial reached the goal at batch size {list_sizes(missing)}")
    edge = curve.filter(curve["at_edge"].fill_null(False))["batch_size"].to_list()
    if edge:
        doubts.append(f"the best trial lies at an edge of its search space at batch size {list_sizes(edge)}")
    moving = curve.filter(curve["still_moves"].fill_null(False) & curve["steps"].is_not_null())["batch_size"].to_list()
    if moving:
        doubts.append(f"more trials would likely still move batch size {list_sizes(moving)}")
    if not doubts:
        return "Believe it: every point is inside its search space and more trials would hardly move it."
    return f"Read it with care, and search again before you rely on these points: {'; '.join(doubts)}."


def list_sizes(sizes: list[int]) -> str:
    """Batch sizes in words: "1, 2 and 4"; after six of them how many more there are."""
    shown = [f"{size:,}" for size in sizes[:6]] + ([f"{len(sizes) - 6} more"] if len(sizes) > 6 else [])
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]


def _span(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return ""
    if high is None:
        return f" (at least {_round(low or 0)})"
    if low is None:
        return f" (at most {_round(high)})"
    return "" if low == high else f" ({_round(low)} to {_round(high)})"


def _round(value: float) -> str:
    digits = float(f"{value:.3g}")
    return f"{digits:,.0f}" if digits >= 100 else f"{digits:g}"
