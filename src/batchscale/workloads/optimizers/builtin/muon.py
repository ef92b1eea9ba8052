"""Muon (Jordan et al., 2024): orthogonalised momentum for matrices, Adam for the other parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.spec.space import Scale
from batchscale.workloads.optimizers.declaration import OptimizerDeclaration, make_range

if TYPE_CHECKING:
    import optax

    from batchscale.workloads.optimizers.declaration import Rate
    from batchscale.workloads.workload import Metaparameters


def _rule(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    from optax import contrib

    made: optax.GradientTransformation = contrib.muon(
        rate,
        beta=values["momentum"],
        eps=values["epsilon"],
        weight_decay=values["weight_decay"],
        adam_b1=values["beta1"],
        adam_b2=values["beta2"],
    )
    return made


OPTIMIZER = OptimizerDeclaration(
    "muon",
    {"learning_rate": None, "momentum": 0.95, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.0},
    (make_range("learning_rate", 1e-4, 1.0), make_range("momentum", 0.5, 0.999, Scale.REVERSE_LOG)),
    _rule,
)
