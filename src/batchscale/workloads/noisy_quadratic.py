"""The noisy quadratic model and its exact expected loss. No jax here: this is the oracle of the whole system.

The loss is ``½ Σ h_i θ_i²`` with curvatures ``h_i = i^-p``; the gradient of a batch of size B is ``h·θ`` plus noise of
variance ``c_i/B``, independent between coordinates and steps (Zhang et al., 2019, "Which algorithmic choices matter at
which batch sizes?"). Every update rule of the paper is linear in (θ, v), so that second moments follow a linear
recursion.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import SpecError, UnknownNameError, one_line, suggest_names
from batchscale.spec.experiment import Options

Floats = NDArray[np.float64]
RULES = ("sgd", "momentum", "nesterov_momentum")
MAX_DIMENSION = 10_000_000
MAX_VARIANCE = 1e30  # times the largest dimension a single-precision number still
MIN_CURVATURE = 1e-30


@dataclass(frozen=True)
class NoisyQuadratic:
    """The problem: its number of coordinates, curvatures, noise and where training starts.

    ``noise`` is c, the variance of the gradient's noise at batch size 1: the same in every coordinate, or
    proportional to the curvature with ``noise_like_curvature`` (c_i = c·h_i, as Zhang et al. have it). Training starts
    at distance √``initial_variance`` from the minimum in every coordinate, on a random side of it.
    """

    dimension: int = 100
    noise: float = 1.0
    noise_like_curvature: bool = True
    curvature_power: float = 1.0
    initial_variance: float = 1.0

    def __post_init__(self) -> None:
        if (
            isinstance(self.dimension, bool)
            or not isinstance(self.dimension, int)
            or not 1 <= self.dimension <= MAX_DIMENSION
        ):
            raise SpecError(
                f"noisy_quadratic: dimension is a whole number from 1 to {MAX_DIMENSION:,}. "
                f"Found {one_line(repr(self.dimension))}."
            )
        for name in ("noise", "curvature_power", "initial_variance"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_VARIANCE:
                raise SpecError(
                    f"noisy_quadratic: {name} is a number from 0 to {MAX_VARIANCE:g}. Found {one_line(repr(value))}."
                )
        least = -self.curvature_power * math.log10(self.dimension)
        if least < math.log10(MIN_CURVATURE):
            raise SpecError(
                f"noisy_quadratic: the smallest curvature, dimension^-curvature_power, is at least {MIN_CURVATURE:g}, "
                f"or single precision cannot tell it from 0. Found 10^{least:.4g}; lower curvature_power or dimension."
            )
        if not isinstance(self.noise_like_curvature, bool):
            raise SpecError("noisy_quadratic: noise_like_curvature is true or false.")

    @property
    def curvatures(self) -> Floats:
        """The curvature h_i of each coordinate."""
        return np.arange(1, self.dimension + 1, dtype=np.float64) ** -self.curvature_power

    @property
    def noise_variances(self) -> Floats:
        """The variance c_i of the gradient's noise in each coordinate at batch size 1."""
        return self.noise * (self.curvatures if self.noise_like_curvature else np.ones(self.dimension))


def parse_problem(options: Options) -> NoisyQuadratic:
    """Return the problem that the options of the data set ``noisy_quadratic`` describe."""
    valid = NoisyQuadratic.__dataclass_fields__
    for key in options:
        if key not in valid:
            raise UnknownNameError(f"noisy_quadratic has no option '{one_line(key)}'; {suggest_names(key, valid)}")
    return NoisyQuadratic(**options)  # type: ignore[arg-type]  # the class itself checks the kind of each value


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


def closed_form_loss(problem: NoisyQuadratic, rule: UpdateRule, batch_size: int, steps: int) -> Floats:
    """Return the expected loss before the first step and after each of ``steps`` steps.

    >>> problem = NoisyQuadratic(dimension=1, noise=0.0)
    >>> closed_form_loss(problem, UpdateRule("sgd", 0.5), batch_size=1, steps=2).tolist()
    [0.5, 0.125, 0.03125]
    """
    losses = _expected_losses(problem, rule, batch_size)
    return np.array([next(losses) for _ in range(steps + 1)])


def closed_form_steps_to_loss(
    problem: NoisyQuadratic, rule: UpdateRule, batch_size: int, goal: float, max_steps: int
) -> int | None:
    """Return the first step after which the expected loss is below the goal; None if it is not within ``max_steps``."""
    for step, loss in zip(range(max_steps + 1), _expected_losses(problem, rule, batch_size), strict=False):
        if loss < goal:
            return step
        if not math.isfinite(loss):
            return None
    return None


def _expected_losses(problem: NoisyQuadratic, rule: UpdateRule, batch_size: int) -> Iterator[float]:
    """Compute the recursion of E[θ²], E[θv] and E[v²] in every coordinate.

    With v' = γ v + g and g = hθ + ε, both momentum rules are θ' = θ - a·g - b·v' (heavy ball: a = 0, b = η; Nesterov:
    a = η, b = ηγ); SGD is a = η, b = 0.
    """
    h, variance = problem.curvatures, problem.noise_variances / batch_size
    momentum = 0.0 if rule.optimizer == "sgd" else rule.momentum
    tt = np.full(problem.dimension, float(problem.initial_variance))
    tv, vv = np.zeros_like(tt), np.zeros_like(tt)
    step = 0
    with np.errstate(over="ignore", invalid="ignore"):
        while True:
            yield float(0.5 * np.sum(h * tt))
            a, b = _weights(rule, momentum, rule.rate(step))
            # θ' = p·θ + q·v - r·ε and v' = h·θ + γ·v + ε
            p, q, r = 1 - (a + b) * h, -b * momentum, a + b
            new_tt = p * p * tt + 2 * p * q * tv + q * q * vv + r * r * variance
            new_tv = p * h * tt + (p * momentum + q * h) * tv + q * momentum * vv - r * variance
            new_vv = h * h * tt + 2 * h * momentum * tv + momentum * momentum * vv + variance
            tt, tv, vv = new_tt, new_tv, new_vv
            step += 1


def _weights(rule: UpdateRule, momentum: float, rate: float) -> tuple[float, float]:
    if rule.optimizer == "sgd":
        return rate, 0.0
    return (0.0, rate) if rule.optimizer == "momentum" else (rate, rate * momentum)
