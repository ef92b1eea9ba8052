"""Muon (Jordan et al., 2024): orthogonalised momentum for matrices, Adam for embeddings and all other parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from batchscale.spec.space import Bounds, Scale
from batchscale.workloads.optimizers.declaration import OptimizerDeclaration, make_range

if TYPE_CHECKING:
    import optax

    from batchscale.workloads.optimizers.declaration import Rate
    from batchscale.workloads.workload import Metaparameters


def _labels(params: Any) -> Any:
    """Return the rule of each parameter: matrices that are no table of embeddings are orthogonalised."""
    import jax

    def label(path: tuple[Any, ...], leaf: Any) -> str:
        is_table = getattr(path[-1], "key", None) == "table"
        return "muon" if leaf.ndim == 2 and not is_table else "adam"

    return jax.tree_util.tree_map_with_path(label, params)


def _rule(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    import optax
    from optax import contrib

    muon = contrib.muon(rate, beta=values["momentum"], eps=values["epsilon"], weight_decay=values["weight_decay"])
    adam = optax.nadam(
        lambda step: values["adam_rate_factor"] * rate(step), values["beta1"], values["beta2"], values["epsilon"]
    )
    made: optax.GradientTransformation = optax.multi_transform({"muon": muon, "adam": adam}, _labels)
    return made


OPTIMIZER = OptimizerDeclaration(
    "muon",
    {
        "learning_rate": None,
        "momentum": 0.95,
        "adam_rate_factor": 1.0,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "weight_decay": 0.0,
    },
    (make_range("learning_rate", 1e-4, 1.0), make_range("momentum", 0.5, 0.999, Scale.REVERSE_LOG)),
    _rule,
    {"adam_rate_factor": Bounds(0, math.inf)},
)
