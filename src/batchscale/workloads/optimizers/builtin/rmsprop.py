"""RMSprop with momentum (Tieleman and Hinton, 2012)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.spec.space import Bounds, Scale
from batchscale.workloads.optimizers.declaration import SMALL_LEARNING_RATE, OptimizerDeclaration, make_range

if TYPE_CHECKING:
    import optax

    from batchscale.workloads.optimizers.declaration import Rate
    from batchscale.workloads.workload import Metaparameters


def _rule(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    import optax

    return optax.chain(
        optax.scale_by_rms(values["rms_decay"], values["epsilon"]),
        optax.scale_by_learning_rate(rate),
        optax.trace(values["momentum"]),
    )


OPTIMIZER = OptimizerDeclaration(
    "rmsprop",
    {"learning_rate": None, "rms_decay": 0.9, "momentum": 0.0, "epsilon": 1e-8},
    (SMALL_LEARNING_RATE, make_range("rms_decay", 0.5, 0.999, Scale.REVERSE_LOG)),
    _rule,
    bounds={"rms_decay": Bounds(0, 1, high_open=True)},
)
