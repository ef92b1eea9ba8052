"""The noisy quadratic system: the loss of language models over parameters N, batch size B and steps K.

Li and Maddison (2026, arXiv 2605.09154) let a model of N parameters train the first N coordinates of an endless noisy
quadratic, with a fixed learning rate η. Coordinate n has the curvature λ = Q·n^-q, the risk ½P·n^-p at the start and
noise of variance R·n^-r. With β = (1 - ηλ)² the expected loss is

    L = e + ½P·ζ(p, N + 1) + Σ_{n ≤ N} ½P·n^-p·β^K + ½λR·n^-r·η²/B·(1 - β^K)/(1 - β).

The sum over millions of coordinates is exact for the first hundred, and Euler-Maclaurin's integral with Gauss-Legendre
nodes in log n beyond: equal to the whole sum to 1e-8, and thousands of times faster. So the seven parameters are fitted
on a processor in seconds.
"""

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls
from scipy.special import zeta
from scipy.stats import qmc

from batchscale.errors import AnalysisError
from batchscale.noisy_quadratic.problem import Floats
from batchscale.prediction.model_curve import PredictedSizes, read_model_curve, with_interval
from batchscale.prediction.prediction import Prediction, Quantity

METHOD = "noisy_quadratic_system"
ASSUMPTION = (
    "All runs differ in parameters, batch size and steps alone, with one learning rate and schedule, as the noisy "
    "quadratic system has it."
)
NO_INTERVAL = "Fewer than nine in ten of the resampled fits have one."
NO_OPTIMUM = "The curve of the system has no batch size of fewest examples above 1."
LETTERS = ("p", "q", "P", "Q", "e_irr", "R", "r")  # as published, and in JSON
RATE = 1.999  # η; the published system has it fixed, since Q and R scale with it
FEWEST_RUNS = 12
MAX_STEPS = 1e13
_EXACT = 100  # coordinates that are added one by one
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_STARTS = 256  # values of the four parameters in which the loss is not linear
_POLISHED = 6  # of the best of these
_EVALUATIONS = 80
_EQUAL = 1.01  # fits whose error is within this factor of the least are equally good
_LOW = np.array([-6.0, -3.0, -8.0, -8.0, -8.0, -8.0, -2.0])  # of the free coordinates
_HIGH = np.array([2.0, 2.0, 8.0, 12.0, 3.0, 12.0, 8.0])


@dataclass(frozen=True)
class NoisyQuadraticSystem:
    """The seven parameters, in the order of ``LETTERS``.

    Attributes:
        risk_exponent: p, of the risk at the start over coordinates.
        curvature_exponent: q.
        risk: P.
        curvature: Q; below 2/η, where training is stable.
        floor: e_irr, the loss that no model gets below.
        noise: R.
        noise_exponent: r.
    """

    risk_exponent: float
    curvature_exponent: float
    risk: float
    curvature: float
    floor: float
    noise: float
    noise_exponent: float

    def loss(self, parameters: Floats | float, batch_size: Floats | float, steps: Floats | float) -> Floats:
        """Return the loss of runs: models of so many parameters (over 100), batch sizes and steps.

        >>> PUBLISHED.loss(10e6, 192, 1250).round(3).tolist()
        [3.404]
        """
        count, size, number = np.broadcast_arrays(*np.atleast_1d(parameters, batch_size, steps))
        shape = (self.risk_exponent, self.curvature_exponent, self.curvature, self.noise_exponent)
        start, noise = _per_unit(shape, *(values.astype(np.float64) for values in (count, size, number)))
        total: Floats = self.floor + self.risk * start + self.noise * noise
        return total

    def steps_to_loss(self, parameters: float, batch_size: float, goal: float) -> float | None:
        """Return the steps, as a real number, after which the loss first passes a goal; None if it never does."""
        low, high = 0.0, math.log(MAX_STEPS)
        for _ in range(4):
            logs = np.linspace(low, high, 121)
            below = np.flatnonzero(self.loss(parameters, batch_size, np.exp(logs)) < goal)
            if not len(below):
                return None
            if below[0] == 0:
                return math.exp(low)
            low, high = float(logs[below[0] - 1]), float(logs[below[0]])
        return math.exp(high)

    @property
    def letters(self) -> dict[str, float]:
        """The parameters by their published letters."""
        return dict(zip(LETTERS, astuple(self), strict=True))


PUBLISHED = NoisyQuadraticSystem(1.1131, 0.58424, 3.3927, 0.88533, 0.35450, 8.4100, 2.5829)
"""The fit of Li and Maddison to the training split of their runs."""


@dataclass(frozen=True, eq=False)
class SystemFit:
    """A fitted system, and the systems fitted to resampled runs.

    Attributes:
        system: The least squares of log loss.
        runs: The number of runs.
        rms_log: The root mean square of the residuals of log loss.
        resampled: Fits to runs drawn with replacement; empty if none was asked for.
    """

    system: NoisyQuadraticSystem
    runs: int
    rms_log: float
    resampled: tuple[NoisyQuadraticSystem, ...] = ()

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """The 90 % interval of each parameter by its letter, over the resampled fits; empty without."""
        if not self.resampled:
            return {}
        ends = np.quantile([astuple(system) for system in self.resampled], (0.05, 0.95), axis=0)
        return {letter: (float(low), float(high)) for letter, low, high in zip(LETTERS, *ends, strict=True)}

    @property
    def weak(self) -> tuple[str, ...]:
        """The letters of the parameters that the runs hardly determine: their interval spans a factor of two."""
        return tuple(letter for letter, (low, high) in self.ranges.items() if low <= 0 or high > 2 * low)


def fit_system(runs: pl.DataFrame, resamples: int = 0, seed: int = 0) -> SystemFit:
    """Return the system of least squares of log loss, from many starts.

    In P, e and R the loss is linear: at each start they come from non-negative least squares of the other four.

    Args:
        runs: Columns ``parameters``, ``batch_size``, ``tokens`` and ``loss`` of ``GRID_SCHEMA``; steps are tokens over
            batch size.
        resamples: Fits to resampled runs, for intervals.
        seed: Of the starts and of the resampled runs.

    Raises:
        AnalysisError: There are too few runs, or all have the same parameters, batch size or steps.
    """
    data = _Runs.of(runs)
    polished = sorted(
        (_polish(data, start) for start in _find_starts(data, seed)[:_POLISHED]), key=lambda item: item[0]
    )
    error, best = polished[0]
    equal = [free for other, free in polished if other <= _EQUAL * error]  # they differ in what the runs leave open
    random = np.random.default_rng(seed)
    draws = [data.take(random.integers(0, len(data.loss), len(data.loss))) for _ in range(resamples)]
    resampled = tuple(_system(_polish(draw, equal[i % len(equal)])[1]) for i, draw in enumerate(draws))
    return SystemFit(_system(best), len(data.loss), error, resampled)


def log_error(system: NoisyQuadraticSystem, runs: pl.DataFrame) -> float:
    """Return the root mean square error of a system's log loss over runs."""
    data = _Runs.of(runs, fitted=False)
    errors = np.log(system.loss(data.parameters, data.batch_size, data.steps) / data.loss)
    return float(np.sqrt(np.mean(errors**2)))


def hold_back_largest(runs: pl.DataFrame, share: float = 0.2) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the runs without those of most compute (parameters times tokens), and these: at least so many of all."""
    ordered = runs.sort(pl.col("parameters") * pl.col("tokens"), maintain_order=True)
    count = math.ceil(share * len(ordered))
    return ordered.head(len(ordered) - count), ordered.tail(count)


def system_predictions(fit: SystemFit, parameters: float, goal: float, runs: pl.DataFrame) -> list[Prediction]:
    """Return the critical and the optimal batch size of a model of so many parameters at a goal loss.

    Args:
        fit: The fitted system; its resampled fits give the intervals.
        parameters: Of the model.
        goal: The loss to reach.
        runs: The runs that were fitted, for their cost.
    """

    def sizes(system: NoisyQuadraticSystem) -> PredictedSizes:
        return read_model_curve(lambda size: system.steps_to_loss(parameters, size, goal))

    central, resampled = sizes(fit.system), [sizes(system) for system in fit.resampled]
    steps, examples = int((runs["tokens"] / runs["batch_size"]).sum()), int(runs["tokens"].sum())
    predictions = []
    quantities: list[tuple[Quantity, float | None, list[float | None]]] = [
        ("critical_batch_size", central.critical, [item.critical for item in resampled]),
        ("optimal_batch_size", central.optimal, [item.optimal for item in resampled]),
    ]
    for quantity, value, others in quantities:
        estimate = with_interval(value, others)
        missing = central.reason or NO_OPTIMUM
        reason = missing if value is None else "" if estimate.has_interval else NO_INTERVAL
        predictions.append(Prediction(METHOD, quantity, estimate, steps, examples, ASSUMPTION, reason))
    return predictions


@dataclass(frozen=True, eq=False)
class _Runs:
    parameters: Floats
    batch_size: Floats
    steps: Floats
    loss: Floats

    @classmethod
    def of(cls, frame: pl.DataFrame, *, fitted: bool = True) -> "_Runs":
        count, size, tokens, loss = (
            frame[name].to_numpy().astype(np.float64) for name in ("parameters", "batch_size", "tokens", "loss")
        )
        steps = tokens / size
        if not fitted:
            return cls(count, size, steps, loss)
        if len(frame) < FEWEST_RUNS:
            raise AnalysisError(
                f"A noisy quadratic system has seven parameters and needs {FEWEST_RUNS} runs or more. "
                f"Found {len(frame)}."
            )
        for name, values in (("parameters", count), ("batch sizes", size), ("steps", steps)):
            if values.max() < 1.5 * values.min():
                raise AnalysisError(
                    f"A noisy quadratic system is fitted to runs of different {name}. Found {values.min():.4g} to "
                    f"{values.max():.4g}; add runs that differ at least twofold."
                )
        if count.min() <= _EXACT or loss.min() <= 0:
            raise AnalysisError(
                f"A noisy quadratic system needs models of more than {_EXACT} parameters and losses above 0. Found "
                f"{count.min():.4g} parameters and a loss of {loss.min():.4g}."
            )
        return cls(count, size, steps, loss)

    def take(self, rows: NDArray[np.int64]) -> "_Runs":
        return _Runs(self.parameters[rows], self.batch_size[rows], self.steps[rows], self.loss[rows])


_Shape = tuple[float, float, float, float]  # p, q, Q and r, in which the loss is not linear


def _per_unit(shape: _Shape, parameters: Floats, batch_size: Floats, steps: Floats) -> tuple[Floats, Floats]:
    """Return the loss of each run per unit of P, and per unit of R."""
    p, q, curvature, r = shape
    coordinates, weights = _coordinates(parameters)
    share = RATE * curvature * coordinates**-q  # η·λ
    with np.errstate(divide="ignore"):
        rest = -np.expm1(2 * steps[:, None] * np.log(np.abs(1 - share)))  # 1 - β^K
    start = np.sum(weights * coordinates**-p * (1 - rest), axis=1)
    noise = np.sum(weights * coordinates**-r * rest / (2 - share), axis=1)
    return 0.5 * (zeta(p, parameters + 1) + start), 0.5 * RATE * noise / batch_size


def _coordinates(parameters: Floats) -> tuple[Floats, Floats]:
    """Return the coordinates at which terms are calculated, and their weights in the sum, one row per run."""
    ones = np.ones((len(parameters), 1))
    low = math.log(_EXACT)
    half = (np.log(parameters)[:, None] - low) / 2
    between = np.exp(low + half * (1 + _NODES))
    end, step = parameters[:, None], np.array([-1.0, 0.0, 1.0])
    ends = np.array([-1 / 24, 1 / 2, 1 / 24])  # half the last term, and a twelfth of the slope there
    coordinates = [ones * np.arange(1, _EXACT + 1), between, end + step, ones * (_EXACT + step)]
    weights = [ones * np.ones(_EXACT), half * _WEIGHTS * between, ones * ends, -ones * ends]
    return np.concatenate(coordinates, axis=1), np.concatenate(weights, axis=1)


def _system(free: Floats) -> NoisyQuadraticSystem:
    """Return the system at free coordinates: logarithms of p - 1, q, P, Q/(2/η - Q), e and R, and r."""
    p, q, risk, curvature, floor, noise = (float(np.exp(value)) for value in free[:6])
    return NoisyQuadraticSystem(1 + p, q, risk, 2 / RATE * curvature / (1 + curvature), floor, noise, float(free[6]))


def _find_starts(data: _Runs, seed: int) -> list[Floats]:
    """Return free coordinates, those of the best linear fits first."""
    ranked = []
    for a, b, c, d in qmc.Sobol(4, seed=seed).random(_STARTS):
        log_p, log_q = math.log(10) * (2 * a - 1.7), math.log(10) * (1.1 * b - 0.6)
        log_odds, r = 9 * c - 5, 4 * d - 0.5
        share = 2 / RATE / (1 + math.exp(-log_odds))
        shape = (1 + math.exp(log_p), math.exp(log_q), share, r)
        risk, noise = _per_unit(shape, data.parameters, data.batch_size, data.steps)
        columns = np.stack([risk, np.ones_like(risk), noise], axis=1) / data.loss[:, None]
        amounts, residual = nnls(columns, np.ones_like(risk))
        logs = np.log(np.maximum(amounts, 1e-3))
        ranked.append((residual, np.array([log_p, log_q, logs[0], log_odds, logs[1], logs[2], r])))
    return [start for _, start in sorted(ranked, key=lambda item: item[0])]


def _polish(data: _Runs, start: Floats) -> tuple[float, Floats]:
    """Return the root mean square of the residuals of log loss and the coordinates of a local least squares."""
    target = np.log(data.loss)

    def residuals(free: Floats) -> Floats:
        return np.log(_system(free).loss(data.parameters, data.batch_size, data.steps)) - target

    inside = np.clip(start, _LOW + 1e-6, _HIGH - 1e-6)
    options = {"x_scale": "jac", "ftol": 1e-6, "max_nfev": _EVALUATIONS}
    solution = least_squares(residuals, inside, bounds=(_LOW, _HIGH), **options)
    return math.sqrt(2 * solution.cost / len(target)), np.asarray(solution.x, dtype=np.float64)
