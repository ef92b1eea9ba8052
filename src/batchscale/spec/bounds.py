"""The natural bounds of metaparameters, by name: what a value may be on any workload.

They hold a search space within sense when it is written and when the edge guard moves it outwards.
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
        """Whether the value is allowed."""
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
    """Adds the bounds of a metaparameter that stands beside the rule that takes it, for the life of this process.

    Raises:
        SpecError: The name has other bounds already: one name has one meaning.
    """
    known = _BOUNDS.setdefault(name, bounds)
    if known != bounds:
        raise SpecError(
            f"A metaparameter has one meaning: '{name}' stays within {known}. Found another declaration, {bounds}; "
            "give the second another name."
        )


def declared_bounds() -> dict[str, Bounds]:
    """The bounds of all names that have any: what one process has declared, for another to declare."""
    return dict(_BOUNDS)


_COUNTED_IN_STEPS = ("learning_rate_decay_steps",)


def natural_bounds(name: str, train_steps: int | None = None) -> Bounds:
    """The bounds of a metaparameter; a name we do not know is unbounded.

    In a study of ``train_steps`` what is counted in steps ends there: no trial lives to see the rest.

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
    """Raises SpecError when a range (or a feasible point) leaves the natural bounds of its name."""
    bounds = natural_bounds(config.name)
    discrete = config.type is ParameterType.DISCRETE
    for value in config.feasible_points if discrete else (config.min_value, config.max_value):
        if not bounds.contains(value):
            raise SpecError(f"Metaparameter '{config.name}' must stay within {bounds}. Found {value:g} in its range.")
