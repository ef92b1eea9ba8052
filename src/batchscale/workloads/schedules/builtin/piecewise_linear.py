"""Straight lines between points that the optimizer options give: warm-up, plateaus, drops."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from batchscale.errors import SpecError, one_line
from batchscale.spec.experiment import Options
from batchscale.workloads.schedules.declaration import DECAY_STEPS, ScheduleDeclaration, decay_steps_range

if TYPE_CHECKING:
    import jax

    from batchscale.workloads.workload import Metaparameters


@dataclass(frozen=True)
class Points:
    """The points of a piecewise linear schedule: times, and the factors of the learning rate at these times.

    Times are steps, or with ``fractions`` parts of the metaparameter ``learning_rate_decay_steps``.
    """

    times: tuple[float, ...]
    factors: tuple[float, ...]
    fractions: bool

    def __post_init__(self) -> None:
        times, factors = self.times, self.factors
        if len(times) != len(factors) or not times or times[0] != 0 or min(factors) < 0:
            raise SpecError(
                "A piecewise_linear schedule has as many times as factors, the first time is 0 and no factor is "
                f"negative. Found times {one_line(times)} and factors {one_line(factors)}."
            )
        if any(later <= earlier for earlier, later in itertools.pairwise(times)):
            raise SpecError(f"The times of a piecewise_linear schedule must grow. Found {one_line(times)}.")

    def rate(self, step: jax.Array, values: Metaparameters) -> jax.Array:
        """The learning rate at a step; after the last point it stays."""
        import jax.numpy as jnp

        scale = values[DECAY_STEPS] if self.fractions else 1.0
        times = jnp.asarray(self.times, jnp.float32) * scale
        factor = jnp.interp(jnp.asarray(step, jnp.float32), times, jnp.asarray(self.factors, jnp.float32))
        return values["learning_rate"] * factor


def _read(options: Options) -> ScheduleDeclaration:
    fractions = "schedule_fractions" in options
    if fractions == ("schedule_steps" in options) or "schedule_factors" not in options:
        names = [key for key in PIECEWISE_LINEAR.options if key in options]
        raise SpecError(
            "The schedule piecewise_linear needs the optimizer options schedule_factors and one of schedule_steps and "
            f"schedule_fractions. Found {', '.join(names) or 'none of them'}."
        )
    times = _numbers(options, "schedule_fractions" if fractions else "schedule_steps")
    points = Points(times, _numbers(options, "schedule_factors"), fractions)
    metaparameters = {DECAY_STEPS: decay_steps_range} if fractions else {}
    return replace(PIECEWISE_LINEAR, metaparameters=metaparameters, rate=points.rate)


def _numbers(options: Options, key: str) -> tuple[float, ...]:
    values = options[key]
    if not isinstance(values, tuple | list):
        raise SpecError(f"The optimizer option {key} is a list of numbers. Found {one_line(repr(values))}.")
    numbers = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SpecError(f"The optimizer option {key} is a list of numbers. Found {one_line(repr(value))} in it.")
        numbers.append(_finite(key, value))
    return tuple(numbers)


def _finite(key: str, value: float) -> float:
    try:
        if math.isfinite(value):
            return float(value)
    except OverflowError:  # a whole number beyond the largest float
        pass
    raise SpecError(f"The optimizer option {key} is a list of finite numbers. Found {one_line(value)} in it.")


PIECEWISE_LINEAR = ScheduleDeclaration(
    "piecewise_linear",
    {},
    Points((0.0,), (1.0,), fractions=False).rate,
    options=("schedule_steps", "schedule_fractions", "schedule_factors"),
    read=_read,
)
