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
from batchscale.prediction.model_curve import PredictedSizes, read_model_curve, with_interval
from batchscale.prediction.prediction import Prediction

MEASURED = "noisy_quadratic"
ASSUMED = "noisy_quadratic_assumed"
RESAMPLES = 10
_GOALS = 15  # halvings of the range of the goal
_NORMAL = 1.645  # the middle 90 % of a normal distribution
_LEAST_GOAL = 1e-9  # of the loss at the start
_MOST_COORDINATES = 1_000_000
NO_INTERVAL = "Fewer than nine in ten of the resampled spectra have one."
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

    The interval of the first comes from resampled samples of gradient noise, that of the second from the standard
    error of their trace: neither has the error of the model itself. Products with the Gauss-Newton matrix count as
    gradients of as many examples.
    """
    steps = point.trial_steps + math.ceil(measured.examples / point.batch_size)
    cost = (steps, steps * point.batch_size)
    stated = "" if point.optimizer in RULES else f", and {point.optimizer} behaves like SGD"
    predictions = []
    if MEASURED in methods:
        random, count = np.random.default_rng(0), len(measured.noise)
        draws = [measured.spectrum([int(i) for i in random.integers(0, count, count)]) for _ in range(RESAMPLES)]
        central = _sizes(measured.spectrum(), point)
        estimate = with_interval(central.critical, [_sizes(draw, point).critical for draw in draws])
        predictions.append(_prediction(MEASURED, central, estimate, cost, f"{_LIKE}{stated}."))
    if ASSUMED in methods:
        central = _sizes(assumed_spectrum(measured), point)
        estimate = _scaled(central.critical, *measured.noise_trace)
        predictions.append(_prediction(ASSUMED, central, estimate, cost, f"{_ASSUMED}{stated}."))
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


def _sizes(spectrum: Spectrum, point: TunedPoint) -> PredictedSizes:
    goal = goal_of_point(spectrum, point)
    return read_model_curve(lambda size: _fewest(spectrum, point, size, goal))


def _scaled(value: float | None, noise: float, error: float) -> Estimate:
    """Return the interval from the error of the noise alone: steps depend on c/B, so B_crit is proportional to c."""
    if value is None or noise <= 0:
        return Estimate(value)
    factor = math.exp(_NORMAL * error / noise)
    return Estimate(value, value / factor, value * factor)


def _prediction(
    method: str, sizes: PredictedSizes, estimate: Estimate, cost: tuple[int, int], assumption: str
) -> Prediction:
    reason = sizes.reason if sizes.critical is None else "" if estimate.has_interval else NO_INTERVAL
    return Prediction(method, "critical_batch_size", estimate, *cost, assumption, reason)
