"""A linear warm-up, then a constant learning rate: what is measured at a step does not depend on the step budget."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from batchscale.spec.space import Bounds, ParameterConfig, ParameterType, Scale
from batchscale.workloads.schedules.declaration import ScheduleDeclaration

if TYPE_CHECKING:
    import jax

    from batchscale.workloads.workload import Metaparameters

WARMUP_STEPS = "warmup_steps"


def _range(train_steps: int) -> ParameterConfig:
    """Up to a fifth of the training."""
    return ParameterConfig(WARMUP_STEPS, ParameterType.INTEGER, 1.0, float(max(1, train_steps // 5)), Scale.LOG)


def _rate(step: jax.Array, values: Metaparameters) -> jax.Array:
    """Step t (0 for the first) has (t + 1) / ``warmup_steps`` of the learning rate, at most all of it."""
    import jax.numpy as jnp

    return values["learning_rate"] * jnp.minimum((step + 1) / values[WARMUP_STEPS], 1.0)


WARMUP = ScheduleDeclaration("warmup", {WARMUP_STEPS: _range}, _rate, bounds={WARMUP_STEPS: Bounds(1, math.inf)})
