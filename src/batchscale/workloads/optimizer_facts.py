"""Which metaparameters each optimizer has: their defaults and default ranges. No jax here.

The update rules are in ``optimizers``, under the same names. Ranges and scales of the paper's optimizers are those
of the published example study.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from batchscale.errors import UnknownNameError, one_line, suggest_names
from batchscale.spec import ParameterConfig, ParameterType, Scale

NEUTRAL: Mapping[str, float] = {"l2_penalty": 0.0, "label_smoothing": 0.0, "gradient_clip_norm": float("inf")}
"""Metaparameters of every workload, with the value at which each does nothing."""


def make_range(name: str, low: float, high: float, scale: Scale = Scale.LOG) -> ParameterConfig:
    """A DOUBLE metaparameter between two values."""
    return ParameterConfig(name, ParameterType.DOUBLE, low, high, scale)


@dataclass(frozen=True)
class OptimizerFacts:
    """An optimizer's metaparameters: ``defaults`` of all (None: it must be searched or fixed), ranges of some."""

    name: str
    defaults: Mapping[str, float | None]
    ranges: tuple[ParameterConfig, ...]


_LEARNING_RATE = make_range("learning_rate", 1e-4, 10.0)
_SMALL_LEARNING_RATE = make_range("learning_rate", 1e-5, 0.1)
_MOMENTUM = make_range("momentum", 0.9, 0.9999, Scale.REVERSE_LOG)
_BETA1 = make_range("beta1", 0.5, 0.999, Scale.REVERSE_LOG)
_BETA2 = make_range("beta2", 0.9, 0.9999, Scale.REVERSE_LOG)
_WEIGHT_DECAY = make_range("weight_decay", 1e-5, 1.0)

_ADAM = {"learning_rate": None, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}

_ALL = (
    OptimizerFacts("sgd", {"learning_rate": None}, (_LEARNING_RATE,)),
    OptimizerFacts("momentum", {"learning_rate": None, "momentum": None}, (_LEARNING_RATE, _MOMENTUM)),
    OptimizerFacts("nesterov_momentum", {"learning_rate": None, "momentum": None}, (_LEARNING_RATE, _MOMENTUM)),
    OptimizerFacts("adam", _ADAM, (_SMALL_LEARNING_RATE, _BETA1, _BETA2)),
    OptimizerFacts("adamw", {**_ADAM, "weight_decay": 1e-4}, (_SMALL_LEARNING_RATE, _BETA1, _BETA2, _WEIGHT_DECAY)),
    OptimizerFacts(
        "rmsprop",
        {"learning_rate": None, "rms_decay": 0.9, "momentum": 0.0, "epsilon": 1e-8},
        (_SMALL_LEARNING_RATE, make_range("rms_decay", 0.5, 0.999, Scale.REVERSE_LOG)),
    ),
    OptimizerFacts(
        "lamb",
        {**_ADAM, "epsilon": 1e-6, "weight_decay": 0.0},
        (_LEARNING_RATE, _BETA1, _BETA2),
    ),
    OptimizerFacts(
        "lars",
        {"learning_rate": None, "momentum": None, "weight_decay": 0.0, "trust_coefficient": 0.001},
        (make_range("learning_rate", 1e-3, 100.0), _MOMENTUM),
    ),
    OptimizerFacts(
        "lion",
        {"learning_rate": None, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0},
        (make_range("learning_rate", 1e-6, 0.01), _BETA1, _BETA2),
    ),
    OptimizerFacts(
        "muon",
        {"learning_rate": None, "momentum": 0.95, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.0},
        (make_range("learning_rate", 1e-4, 1.0), make_range("momentum", 0.5, 0.999, Scale.REVERSE_LOG)),
    ),
)

OPTIMIZERS: Mapping[str, OptimizerFacts] = {facts.name: facts for facts in _ALL}


def optimizer_facts(name: str) -> OptimizerFacts:
    """The facts of an optimizer by name."""
    if name not in OPTIMIZERS:
        raise UnknownNameError(f"There is no optimizer '{one_line(name)}'; {suggest_names(name, OPTIMIZERS)}")
    return OPTIMIZERS[name]


def complete_metaparameters(defaults: Mapping[str, float | None], values: Mapping[str, float]) -> dict[str, float]:
    """The values that a compiled program needs: the trial's own, and the defaults of the rest.

    L2 penalty, label smoothing and gradient clipping stay out unless the trial has them: what is absent is off and
    costs nothing.
    """
    return {
        **{name: value for name, value in defaults.items() if value is not None and name not in NEUTRAL},
        **values,
    }
