"""Adam (Kingma and Ba, 2015)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.workloads.optimizers.declaration import BETA1, BETA2, SMALL_LEARNING_RATE, OptimizerDeclaration

if TYPE_CHECKING:
    import optax

    from batchscale.workloads.optimizers.declaration import Rate
    from batchscale.workloads.workload import Metaparameters


def _rule(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    import optax

    return optax.chain(
        optax.scale_by_adam(values["beta1"], values["beta2"], values["epsilon"]),
        optax.scale_by_learning_rate(rate),
    )


OPTIMIZER = OptimizerDeclaration(
    "adam",
    {"learning_rate": None, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
    (SMALL_LEARNING_RATE, BETA1, BETA2),
    _rule,
    label="Adam",
)
