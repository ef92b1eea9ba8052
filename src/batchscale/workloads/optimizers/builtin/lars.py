"""LARS (You et al., 2017)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.spec.space import Bounds
from batchscale.workloads.optimizers.declaration import MOMENTUM, OptimizerDeclaration, make_range

if TYPE_CHECKING:
    import optax

    from batchscale.workloads.optimizers.declaration import Rate
    from batchscale.workloads.workload import Metaparameters


def _rule(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    import optax

    return optax.chain(
        optax.add_decayed_weights(values["weight_decay"]),
        optax.scale_by_trust_ratio(trust_coefficient=values["trust_coefficient"]),
        optax.scale_by_learning_rate(rate),
        optax.trace(values["momentum"]),
    )


OPTIMIZER = OptimizerDeclaration(
    "lars",
    {"learning_rate": None, "momentum": None, "weight_decay": 0.0, "trust_coefficient": 0.001},
    (make_range("learning_rate", 1e-3, 100.0), MOMENTUM),
    _rule,
    bounds={"trust_coefficient": Bounds(0, low_open=True)},
)
