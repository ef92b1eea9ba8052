"""The boundaries of a measured curve: batch sizes read off its points alone, within a tolerance.

``regimes`` puts them together, with the laws that agree with the points. docs/analysis.md has the formulas.
"""

import math

import numpy as np

from batchscale.analysis.curves import Array


def fewest_examples(sizes: Array, steps: Array) -> int:
    """Return the index of the size with the fewest examples to result; the smaller one of equals, up to rounding."""
    examples = sizes * steps
    return int(np.argmax(examples <= examples.min() * (1 + 1e-9)))


def perfect_scaling_range(sizes: Array, steps: Array, level: float, tolerance: float) -> tuple[float, float]:
    """Return the sizes from and up to which every point has S·B <= (1 + tolerance)·level.

    Counted from the point on the line or, where none lies on it, from the fewest examples: points before that one
    are too slow, and end nothing.
    """
    examples = steps * sizes
    inside = examples <= level * (1 + tolerance) * (1 + 1e-12)
    nearest = np.where(examples >= level * (1 - 1e-9), examples, np.inf)
    start = int(np.argmax(nearest <= nearest.min() * (1 + 1e-9)))
    outside = np.flatnonzero(~inside[start:])
    last = start + int(outside[0]) - 1 if outside.size else len(sizes) - 1
    return float(sizes[start]), float(sizes[max(last, 0)])


def cheap_from(sizes: Array, steps: Array, reference: float, tolerance: float) -> float:
    """Return the smallest size that is cheap, with all sizes between it and the reference.

    Cheap: its examples, steps times size, are within the tolerance of the reference's.
    """
    at = int(np.searchsorted(sizes, reference))
    examples = sizes[: at + 1] * steps[: at + 1]
    dear = np.flatnonzero(examples > examples[-1] * (1 + tolerance) * (1 + 1e-12))
    return float(sizes[dear[-1] + 1 if dear.size else 0])


def useful_batch_size(sizes: Array, steps: Array, tolerance: float) -> float:
    """Return the smallest measured batch size with steps within the tolerance of the fewest measured."""
    within = steps <= steps.min() * (1 + tolerance) * (1 + 1e-12)
    return float(sizes[int(np.argmax(within))])


def last_doubling(sizes: Array, steps: Array) -> float:
    """Return steps at the largest size over those at its half, interpolated in logarithms if that was not measured."""
    log_sizes, log_steps = np.log(sizes), np.log(steps)
    half = log_sizes[-1] - math.log(2)
    if half >= log_sizes[0]:
        return math.exp(float(log_steps[-1] - np.interp(half, log_sizes, log_steps)))
    # All sizes lie within one doubling: the fall over them, scaled to a doubling.
    return math.exp(float((log_steps[-1] - log_steps[0]) * math.log(2) / (log_sizes[-1] - log_sizes[0])))


def overhead_batch_size(sizes: Array, steps: Array, overhead: float) -> float:
    """Return B*(τ): the largest measured batch size whose examples are within 1 + τ of the fewest examples."""
    examples = sizes * steps
    within = np.flatnonzero(examples <= examples.min() * (1 + overhead) * (1 + 1e-12))
    return float(sizes[within[-1]])
