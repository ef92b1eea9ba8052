"""Predictions by the noisy quadratic model (Zhang et al. 2019), with a measured and with an assumed spectrum.

A tuned trial at one batch size sets the goal: the loss that the model reaches there in as many steps, with its own best
learning rate. Then the model gives the fewest steps to it at all other batch sizes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchscale.analysis.intervals import Estimate
from batchscale.errors import AnalysisError
from batchscale.noisy_quadratic import NoisyQuadratic, Spectrum, best_steps_to_loss
from batchscale.noisy_quadratic.expected_loss import RULES
from batchscale.noisy_quadratic.measured import MeasuredSpectrum
from batchscale.noisy_quadratic.problem import Floats
from batchscale.prediction.model_curve import read_model_curve, with_interval
from batchscale.prediction.prediction import Prediction

MEASURED = "noisy_quadratic"
ASSUMED = "noisy_quadratic_assumed"
RESAMPLES = 400
_GOALS = 15  # halvings of the range of the goal
_LEAST_GOAL = 1e-9  # of the loss at the start
_MOST_COORDINATES = 1_000_000
_LIKE = "The loss is a quadratic with the curvature and noise of the tuned trial at its goal"
_ASSUMED = "Curvatures fall as 1/i and noise is proportional to them, with the measured traces of both"


@dataclass(frozen=True)
class TunedPoint:
    """The measured point that sets the goal of the model, and its cost.

    Attributes:
        optimizer: The workload's; one that the model lacks counts as SGD.
        batch_size: Of the tuned trial.
        steps: Its steps to the goal.
        trial_steps: All steps that were trained for it.
        momentum: Its momentum, used at all batch sizes; ignored without one.
    """

    optimizer: str
    batch_size: int
    steps: int
    trial_steps: int
    momentum: float = 0.9

    @property
    def rule(self) -> str:
        """The update rule of the model."""
        return self.optimizer if self.optimizer in RULES else "sgd"


def noisy_quadratic_predictions(
    measured: MeasuredSpectrum, point: TunedPoint, methods: Sequence[str] = (MEASURED, ASSUMED)
) -> list[Prediction]:
    """Return the critical batch size by the measured spectrum, and by the assumed one with the measured traces.

    Steps depend on c/B, so B_crit is proportional to the noise that matters: the part of the loss at the tuned point
    that is due to it, or its trace. The intervals hold the sampling of that, and nothing of the error of the model.
    Products with the Gauss-Newton matrix count as gradients of as many examples.
    """
    steps = point.trial_steps + math.ceil(measured.examples / point.batch_size)
    cost = (steps, steps * point.batch_size)
    stated = "" if point.optimizer in RULES else f", and {point.optimizer} behaves like SGD"
    predictions = []
    if MEASURED in methods:
        spectrum = measured.spectrum()
        shares = _noise_shares(measured, spectrum, point)
        predictions.append(_prediction(MEASURED, spectrum, shares, point, cost, f"{_LIKE}{stated}."))
    if ASSUMED in methods:
        traces = np.array([float(np.sum(weights)) for _, weights in measured.noise])
        spectrum = assumed_spectrum(measured)
        predictions.append(_prediction(ASSUMED, spectrum, traces, point, cost, f"{_ASSUMED}{stated}."))
    return predictions


def assumed_spectrum(measured: MeasuredSpectrum) -> Spectrum:
    """Return the spectrum h_i ∝ 1/i of as many coordinates as the model has parameters, with the traces measured.

    All coordinates start equally far from the minimum, together as far as the trial went.
    """
    curvature = measured.trace[0]
    if curvature <= 0:
        raise AnalysisError(f"The noisy quadratic model needs a positive trace of curvature. Found {curvature:g}.")
    base = NoisyQuadratic(dimension=min(measured.parameters, _MOST_COORDINATES)).spectrum.binned(100)
    total = float(base.counts @ base.curvatures)
    curvatures = base.curvatures * (curvature / total)
    start = np.full(len(base.counts), float(np.sum(measured.start[1])) / float(np.sum(base.counts)))
    return Spectrum(curvatures, base.curvatures * (measured.noise_trace[0] / total), start, base.counts)


def goal_of_point(spectrum: Spectrum, point: TunedPoint) -> float:
    """Return the loss that the model reaches in the steps of the tuned point, at its batch size."""
    high = math.log(spectrum.initial_loss)
    low = high + math.log(_LEAST_GOAL)
    for _ in range(_GOALS):
        middle = (low + high) / 2
        steps = _fewest(spectrum, point, point.batch_size, math.exp(middle))
        low, high = (middle, high) if steps is None or steps > point.steps else (low, middle)
    return math.exp(high)


def _fewest(spectrum: Spectrum, point: TunedPoint, size: float, goal: float) -> float | None:
    best = best_steps_to_loss(spectrum, size, goal, point.rule, momenta=(point.momentum,))
    return None if best is None else float(best.steps)


def _noise_shares(measured: MeasuredSpectrum, spectrum: Spectrum, point: TunedPoint) -> Floats:
    """Return, for each sample of noise, its part of the loss at the tuned point, up to a common factor."""
    rule, momenta = point.rule, (point.momentum,)
    best = best_steps_to_loss(spectrum, point.batch_size, goal_of_point(spectrum, point), rule, momenta=momenta)
    rate = 0.0 if best is None else best.learning_rate / (1 - best.momentum)
    shares = []
    for nodes, weights in measured.noise:
        share = np.clip(rate * nodes, 1e-12, 1.0)
        left = -np.expm1(2 * point.steps * np.log1p(-np.minimum(share, 1 - 1e-12)))
        shares.append(float(np.sum(weights * left / (2 - share))))
    return np.array(shares)


def _prediction(
    method: str, spectrum: Spectrum, shares: Floats, point: TunedPoint, cost: tuple[int, int], assumption: str
) -> Prediction:
    goal = goal_of_point(spectrum, point)
    sizes = read_model_curve(lambda size: _fewest(spectrum, point, size, goal))
    if sizes.critical is None:
        return Prediction(method, "critical_batch_size", Estimate(), *cost, assumption, sizes.reason)
    drawn = np.random.default_rng(0).choice(shares, (RESAMPLES, len(shares))).mean(axis=1) / shares.mean()
    estimate = with_interval(sizes.critical, [sizes.critical * float(factor) for factor in drawn])
    return Prediction(method, "critical_batch_size", estimate, *cost, assumption)
