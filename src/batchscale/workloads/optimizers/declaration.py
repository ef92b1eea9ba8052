"""Declarations of optimizers: metaparameters and update rules, and the table of all by name. Imports no jax.

Ranges and scales of the paper's optimizers are those of the published example study.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from batchscale.spec.space import Bounds, ParameterConfig, ParameterType, Scale
from batchscale.workloads.declarations import Table

if TYPE_CHECKING:
    import jax
    import optax

    from batchscale.workloads.workload import Metaparameters

    Rate = Callable[[jax.Array], jax.Array]
    Rule = Callable[[Metaparameters, Rate], optax.GradientTransformation]


@dataclass(frozen=True)
class OptimizerDeclaration:
    """An optimizer by name.

    ``defaults`` names every metaparameter with its value when it is neither searched nor fixed (None: it must be one of
    the two). ``ranges`` is the default search space. ``bounds`` limits metaparameters that only this optimizer has.
    ``rule`` returns the update for array values and a learning rate that is a function of the step; it is called inside
    the compiled program, and imports optax when called. ``label`` is the name in titles and on axes.
    """

    name: str
    defaults: Mapping[str, float | None]
    ranges: tuple[ParameterConfig, ...]
    rule: Rule
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    label: str = ""


OPTIMIZERS = Table(OptimizerDeclaration, "batchscale.workloads.optimizers.builtin", "optimizer")


def make_range(name: str, low: float, high: float, scale: Scale = Scale.LOG) -> ParameterConfig:
    """Return a DOUBLE metaparameter between two values."""
    return ParameterConfig(name, ParameterType.DOUBLE, low, high, scale)


LEARNING_RATE = make_range("learning_rate", 1e-4, 10.0)
SMALL_LEARNING_RATE = make_range("learning_rate", 1e-5, 0.1)
MOMENTUM = make_range("momentum", 0.9, 0.9999, Scale.REVERSE_LOG)
BETA1 = make_range("beta1", 0.5, 0.999, Scale.REVERSE_LOG)
BETA2 = make_range("beta2", 0.9, 0.9999, Scale.REVERSE_LOG)
