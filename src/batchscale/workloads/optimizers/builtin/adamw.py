"""Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.workloads.optimizers.declaration import (
    BETA1,
    BETA2,
    SMALL_LEARNING_RATE,
    OptimizerDeclaration,
    make_range,
)

if TYPE_CHECKING:
    import optax

    from batchscale.workloads.optimizers.declaration import Rate
    from batchscale.workloads.workload import Metaparameters


def _rule(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    import optax

    return optax.chain(
        optax.scale_by_adam(values["beta1"], values["beta2"], values["epsilon"]),
        optax.add_decayed_weights(values["weight_decay"]),
        optax.scale_by_learning_rate(rate),
    )


OPTIMIZER = OptimizerDeclaration(
    "adamw",
    {"learning_rate": None, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 1e-4},
    (SMALL_LEARNING_RATE, BETA1, BETA2, make_range("weight_decay", 1e-5, 1.0)),
    _rule,
)
