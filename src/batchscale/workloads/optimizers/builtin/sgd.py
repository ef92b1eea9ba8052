"""Stochastic gradient descent as the paper's section 2.2 has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.workloads.optimizers.declaration import LEARNING_RATE, OptimizerDeclaration

if TYPE_CHECKING:
    import optax

    from batchscale.workloads.optimizers.declaration import Rate
    from batchscale.workloads.workload import Metaparameters


def _rule(_: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    import optax

    return optax.scale_by_learning_rate(rate)


OPTIMIZER = OptimizerDeclaration("sgd", {"learning_rate": None}, (LEARNING_RATE,), _rule, label="SGD")
