"""Nesterov momentum as the paper's section 2.2 has it: the rule of TensorFlow's MomentumOptimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.workloads.optimizers.declaration import LEARNING_RATE, MOMENTUM, OptimizerDeclaration

if TYPE_CHECKING:
    import optax

    from batchscale.workloads.optimizers.declaration import Rate
    from batchscale.workloads.workload import Metaparameters


def _rule(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    import optax

    return optax.chain(optax.trace(values["momentum"], nesterov=True), optax.scale_by_learning_rate(rate))


OPTIMIZER = OptimizerDeclaration(
    "nesterov_momentum",
    {"learning_rate": None, "momentum": None},
    (LEARNING_RATE, MOMENTUM),
    _rule,
    label="Nesterov momentum",
)
