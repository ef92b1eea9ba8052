"""The natural bounds of metaparameters by name: the values that are possible on any workload.

They limit a search space when it is written and when the edge guard moves it outwards.
"""

import math
from dataclasses import dataclass, replace

from batchscale.errors import SpecError
from batchscale.spec.space import ParameterConfig, ParameterType


@dataclass(frozen=True)
class Bounds:
    """An interval; each end belongs to it unless it is open."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    def contains(self, value: float) -> bool:
        """True if the value is allowed."""
        above = value > self.low if self.low_open else value >= self.low
        below = value < self.high if self.high_open else value <= self.high
        return above and below

    def __str__(self) -> str:
        return f"{'(' if self.low_open else '['}{self.low:g}, {self.high:g}{')' if self.high_open else ']'}"


_POSITIVE = Bounds(0, math.inf, low_open=True)
_NOT_NEGATIVE = Bounds(0, math.inf)
_BELOW_ONE = Bounds(0, 1, high_open=True)

_BOUNDS = {
    "learning_rate": _POSITIVE,
    "end_learning_rate_factor": Bounds(0, 1, low_open=True),
    "learning_rate_decay_steps": Bounds(1, math.inf),
    "learning_rate_decay_power": _POSITIVE,
    "momentum": _BELOW_ONE,
    "beta1": _BELOW_ONE,
    "beta2": _BELOW_ONE,
    "epsilon": _POSITIVE,
    "weight_decay": _NOT_NEGATIVE,
    "l2_penalty": _NOT_NEGATIVE,
    "label_smoothing": _BELOW_ONE,
    "gradient_clip_norm": _POSITIVE,
}


def declare_bounds(name: str, bounds: Bounds) -> None:
    """Add the bounds of a metaparameter, for the life of this process.

    Raises:
        SpecError: The name has other bounds already.
    """
    declared = _BOUNDS.setdefault(name, bounds)
    if declared != bounds:
        raise SpecError(
            f"A metaparameter must have one declaration: '{name}' stays within {declared}. Found another, {bounds}; "
            "give the second another name."
        )


def declared_bounds() -> dict[str, Bounds]:
    """Return the bounds of all names, for another process to declare."""
    return dict(_BOUNDS)


_COUNTED_IN_STEPS = ("learning_rate_decay_steps",)


def natural_bounds(name: str, train_steps: int | None = None) -> Bounds:
    """Return the bounds of a metaparameter; an unknown name is unbounded.

    A metaparameter counted in steps ends at ``train_steps``: no trial gets further.

    >>> str(natural_bounds("momentum"))
    '[0, 1)'
    >>> str(natural_bounds("learning_rate_decay_steps", train_steps=500))
    '[1, 500]'
    """
    bounds = _BOUNDS.get(name, Bounds())
    if train_steps is not None and name in _COUNTED_IN_STEPS:
        return replace(bounds, high=float(train_steps))
    return bounds


def check_bounds(config: ParameterConfig) -> None:
    """Raise SpecError if a range (or a feasible point) leaves the natural bounds of its name."""
    bounds = natural_bounds(config.name)
    discrete = config.type is ParameterType.DISCRETE
    for value in config.feasible_points if discrete else (config.min_value, config.max_value):
        if not bounds.contains(value):
            raise SpecError(f"Metaparameter '{config.name}' must stay within {bounds}. Found {value:g} in its range.")
