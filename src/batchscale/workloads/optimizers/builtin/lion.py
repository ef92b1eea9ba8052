"""Lion (Chen et al., 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.workloads.optimizers.declaration import BETA1, BETA2, OptimizerDeclaration, make_range

if TYPE_CHECKING:
    import optax

    from batchscale.workloads.optimizers.declaration import Rate
    from batchscale.workloads.workload import Metaparameters


def _rule(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    import optax

    return optax.chain(
        optax.scale_by_lion(values["beta1"], values["beta2"]),
        optax.add_decayed_weights(values["weight_decay"]),
        optax.scale_by_learning_rate(rate),
    )


OPTIMIZER = OptimizerDeclaration(
    "lion",
    {"learning_rate": None, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0},
    (make_range("learning_rate", 1e-6, 0.01), BETA1, BETA2),
    _rule,
)
