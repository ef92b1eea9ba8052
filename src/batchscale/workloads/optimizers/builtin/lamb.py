"""LAMB (You et al., 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.workloads.optimizers.declaration import BETA1, BETA2, LEARNING_RATE, OptimizerDeclaration

if TYPE_CHECKING:
    import optax

    from batchscale.workloads.optimizers.declaration import Rate
    from batchscale.workloads.workload import Metaparameters


def _rule(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    import optax

    return optax.chain(
        optax.scale_by_adam(values["beta1"], values["beta2"], values["epsilon"]),
        optax.add_decayed_weights(values["weight_decay"]),
        optax.scale_by_trust_ratio(),
        optax.scale_by_learning_rate(rate),
    )


OPTIMIZER = OptimizerDeclaration(
    "lamb",
    {"learning_rate": None, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6, "weight_decay": 0.0},
    (LEARNING_RATE, BETA1, BETA2),
    _rule,
)
