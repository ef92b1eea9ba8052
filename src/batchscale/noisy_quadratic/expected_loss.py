"""The exact expected loss of the noisy quadratic model, step by step: the oracle of the whole system.

Every update rule of Zhang et al. (2019) is linear in (θ, v), so that second moments follow a linear recursion.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from batchscale.errors import SpecError, one_line
from batchscale.noisy_quadratic.problem import Floats, NoisyQuadratic, Spectrum

RULES = ("sgd", "momentum", "nesterov_momentum")


@dataclass(frozen=True)
class UpdateRule:
    """An optimizer of the paper with its metaparameters. ``learning_rate`` is constant or one value per step."""

    optimizer: str
    learning_rate: float | Sequence[float]
    momentum: float = 0.0

    def __post_init__(self) -> None:
        if self.optimizer not in RULES:
            raise SpecError(
                f"The expected loss is known for {', '.join(RULES)}. Found optimizer '{one_line(self.optimizer)}'."
            )

    def rate(self, step: int) -> float:
        """Return the learning rate at a step."""
        rates = self.learning_rate
        return rates if isinstance(rates, int | float) else rates[min(step, len(rates) - 1)]

    @property
    def velocity_decay(self) -> float:
        """The factor γ of the velocity; 0 for plain SGD."""
        return 0.0 if self.optimizer == "sgd" else self.momentum

    def weights(self, rate: float) -> tuple[float, float]:
        """Return the factors (a, b) of gradient and velocity in θ' = θ - a·g - b·v'."""
        if self.optimizer == "sgd":
            return rate, 0.0
        return (0.0, rate) if self.optimizer == "momentum" else (rate, rate * self.momentum)


def closed_form_loss(problem: NoisyQuadratic | Spectrum, rule: UpdateRule, batch_size: int, steps: int) -> Floats:
    """Return the expected loss before the first step and after each of ``steps`` steps.

    >>> problem = NoisyQuadratic(dimension=1, noise=0.0)
    >>> closed_form_loss(problem, UpdateRule("sgd", 0.5), batch_size=1, steps=2).tolist()
    [0.5, 0.125, 0.03125]
    """
    losses = _expected_losses(problem, rule, batch_size)
    return np.array([next(losses) for _ in range(steps + 1)])


def closed_form_steps_to_loss(
    problem: NoisyQuadratic | Spectrum, rule: UpdateRule, batch_size: int, goal: float, max_steps: int
) -> int | None:
    """Return the first step after which the expected loss is below the goal; None if it is not within ``max_steps``."""
    for step, loss in zip(range(max_steps + 1), _expected_losses(problem, rule, batch_size), strict=False):
        if loss < goal:
            return step
        if not math.isfinite(loss):
            return None
    return None


def _expected_losses(problem: NoisyQuadratic | Spectrum, rule: UpdateRule, batch_size: int) -> Iterator[float]:
    """Compute the recursion of E[θ²], E[θv] and E[v²] in every coordinate.

    With v' = γ v + g and g = hθ + ε, both momentum rules are θ' = θ - a·g - b·v' (heavy ball: a = 0, b = η; Nesterov:
    a = η, b = ηγ); SGD is a = η, b = 0.
    """
    spectrum = problem.spectrum if isinstance(problem, NoisyQuadratic) else problem
    h, variance, weight = spectrum.curvatures, spectrum.noise / batch_size, spectrum.counts * spectrum.curvatures
    momentum = rule.velocity_decay
    tt = spectrum.start
    tv, vv = np.zeros_like(tt), np.zeros_like(tt)
    step = 0
    with np.errstate(over="ignore", invalid="ignore"):
        while True:
            yield float(0.5 * np.sum(weight * tt))
            a, b = rule.weights(rule.rate(step))
            # θ' = p·θ + q·v - r·ε and v' = h·θ + γ·v + ε
            p, q, r = 1 - (a + b) * h, -b * momentum, a + b
            new_tt = p * p * tt + 2 * p * q * tv + q * q * vv + r * r * variance
            new_tv = p * h * tt + (p * momentum + q * h) * tv + q * momentum * vv - r * variance
            new_vv = h * h * tt + 2 * h * momentum * tv + momentum * momentum * vv + variance
            tt, tv, vv = new_tt, new_tv, new_vv
            step += 1
