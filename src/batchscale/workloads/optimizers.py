"""The update rules, through optax, with every metaparameter as an array argument.

``sgd``, ``momentum`` and ``nesterov_momentum`` are exactly the rules of the paper's section 2.2 (those of
TensorFlow's MomentumOptimizer). Metaparameters and their ranges are in ``optimizer_facts``, under the same names.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import optax
from optax import contrib

from batchscale.spec import SearchSpace
from batchscale.workloads.optimizer_facts import optimizer_facts
from batchscale.workloads.workload import Metaparameters, Optimizer, Params

Rate = Callable[[jax.Array], jax.Array]
Make = Callable[[Metaparameters, Rate], optax.GradientTransformation]


def _sgd(_: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    return optax.scale_by_learning_rate(rate)


def _momentum(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    return optax.chain(optax.trace(values["momentum"]), optax.scale_by_learning_rate(rate))


def _nesterov_momentum(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    return optax.chain(optax.trace(values["momentum"], nesterov=True), optax.scale_by_learning_rate(rate))


def _scale_by_adam(values: Metaparameters) -> optax.GradientTransformation:
    return optax.scale_by_adam(values["beta1"], values["beta2"], values["epsilon"])


def _adam(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    return optax.chain(_scale_by_adam(values), optax.scale_by_learning_rate(rate))


def _adamw(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    return optax.chain(
        _scale_by_adam(values), optax.add_decayed_weights(values["weight_decay"]), optax.scale_by_learning_rate(rate)
    )


def _rmsprop(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    return optax.chain(
        optax.scale_by_rms(values["rms_decay"], values["epsilon"]),
        optax.scale_by_learning_rate(rate),
        optax.trace(values["momentum"]),
    )


def _lamb(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    return optax.chain(
        _scale_by_adam(values),
        optax.add_decayed_weights(values["weight_decay"]),
        optax.scale_by_trust_ratio(),
        optax.scale_by_learning_rate(rate),
    )


def _lars(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    return optax.chain(
        optax.add_decayed_weights(values["weight_decay"]),
        optax.scale_by_trust_ratio(trust_coefficient=values["trust_coefficient"]),
        optax.scale_by_learning_rate(rate),
        optax.trace(values["momentum"]),
    )


def _lion(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    return optax.chain(
        optax.scale_by_lion(values["beta1"], values["beta2"]),
        optax.add_decayed_weights(values["weight_decay"]),
        optax.scale_by_learning_rate(rate),
    )


def _muon(values: Metaparameters, rate: Rate) -> optax.GradientTransformation:
    made: optax.GradientTransformation = contrib.muon(
        rate,
        beta=values["momentum"],
        eps=values["epsilon"],
        weight_decay=values["weight_decay"],
        adam_b1=values["beta1"],
        adam_b2=values["beta2"],
    )
    return made


MAKERS: Mapping[str, Make] = {
    "sgd": _sgd,
    "momentum": _momentum,
    "nesterov_momentum": _nesterov_momentum,
    "adam": _adam,
    "adamw": _adamw,
    "rmsprop": _rmsprop,
    "lamb": _lamb,
    "lars": _lars,
    "lion": _lion,
    "muon": _muon,
}


def get_optimizer(name: str) -> Optimizer:
    """The optimizer by name, with the metaparameters and ranges that ``optimizer_facts`` gives it."""
    facts = optimizer_facts(name)
    make = MAKERS[name]
    return Optimizer(
        name=name,
        defaults=facts.defaults,
        space=lambda _: SearchSpace(facts.ranges),
        make=lambda values, schedule: make(values, lambda step: schedule(step, values)),
    )


def regularize(values: Metaparameters) -> tuple[optax.GradientTransformation, ...]:
    """What happens to a gradient before the optimizer sees it: the L2 penalty's part is added, then it is clipped.

    The penalty is half the squared norm of all parameters times ``l2_penalty`` (equation 4). A metaparameter that is
    absent is off and costs nothing in the compiled program.
    """
    parts = []
    if "l2_penalty" in values:
        parts.append(optax.add_decayed_weights(values["l2_penalty"]))
    if "gradient_clip_norm" in values:
        parts.append(_clip_by_global_norm(values["gradient_clip_norm"]))
    return tuple(parts)


def _clip_by_global_norm(limit: jax.Array) -> optax.GradientTransformation:
    """Gradients scaled to a norm of at most ``limit``; unlike optax's, also for ``inf``, which is off."""

    def update(gradients: Params, state: optax.EmptyState, params: Params = None) -> tuple[Params, optax.EmptyState]:
        del params
        norm = optax.tree.norm(gradients)
        scale = jnp.where(norm > limit, limit / norm, 1.0)
        return jax.tree.map(lambda gradient: gradient * scale, gradients), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)
