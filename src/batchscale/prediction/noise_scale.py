"""The gradient noise scale of a trial: the ratio of the gradient's noise to its size, with an interval.

Owns the estimators, which are pure. The columns that they read are measured by ``training/gradient_noise.py``, or by
``batchscale/gradient_noise.py`` in a user's own script. Each column is a mean over examples that were drawn for it, so
that averages over measurements are taken first and their ratio last: a mean of ratios would be biased, and infinite
where a gradient happens to be near zero (McCandlish et al., 2018, appendix A.1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from batchscale.analysis.curves import Array
from batchscale.analysis.intervals import Estimate
from batchscale.analysis.quantiles import student_quantile
from batchscale.prediction.prediction import Prediction
from batchscale.spec.goal import Goal
from batchscale.spec.gradient_noise import EXAMPLES_COLUMN, NOISE_COLUMNS, NoiseKind

Rows = NDArray[np.intp] | slice

LEVEL = 0.95
MIN_BLOCKS = 5
"""The fewest groups of measurements that an interval is computed from."""

MIN_ROWS_FOR_CORRELATION = 20
"""The fewest measurements from which their dependence is estimated; fewer count as independent."""

WINDOW = 8
"""The fewest measurements of a part of a training."""

MAX_WINDOWS = 8
_AT_GOAL = 0.25  # the share of the measurements before the goal, the last ones, that count as being there

_ASSUMPTIONS = {
    NoiseKind.EUCLIDEAN: "Steps follow the gradient itself, and the loss is as curved in the direction of its noise as "
    "in its own (McCandlish et al., 2018).",
    NoiseKind.PRECONDITIONED: "Steps follow the gradient scaled by Adam's second moments, and in that scale the loss "
    "is as curved in the direction of the noise as in the gradient's own.",
    NoiseKind.SIGN: "Steps have the same size in every coordinate, and a sign is lost to noise where the noise is as "
    "large as the gradient (Bernstein et al., 2018).",
    NoiseKind.SPECTRAL: "Steps are orthogonal matrices, and a direction is lost to noise where the noise is as large "
    "as the gradient.",
}


@dataclass(frozen=True)
class NoiseSeries:
    """Measurements of one kind in the order of their steps, without those that lack a value.

    ``signals`` is one column, or two that bracket a norm without an unbiased estimate: the low one first.
    """

    steps: NDArray[np.int64]
    signals: tuple[Array, ...]
    noise: Array
    power: int = 1

    def __getitem__(self, rows: Rows) -> "NoiseSeries":
        """Return the measurements of these rows."""
        return NoiseSeries(
            self.steps[rows], tuple(signal[rows] for signal in self.signals), self.noise[rows], self.power
        )

    def ratios(self) -> Array:
        """Return the ratio of averages to its power, by each of the signals."""
        means = np.array([signal.mean() for signal in self.signals])
        with np.errstate(divide="ignore"):
            return np.asarray((self.noise.mean() / means) ** self.power)

    def is_positive(self) -> bool:
        """Return True if the averages are those of a noise scale: all positive."""
        return all(float(column.mean()) > 0 for column in (*self.signals, self.noise))


@dataclass(frozen=True)
class NoiseScale:
    """A noise scale in examples, between two steps of a training.

    ``estimate`` has no value if it is not resolved; ``reason`` is why, in one sentence. ``standard_error`` is that of
    the value.
    """

    first_step: int
    last_step: int
    num_measurements: int
    estimate: Estimate
    standard_error: float | None = None
    reason: str = ""


def split_norms(small: Array, big: Array, small_size: float, big_size: float) -> tuple[Array, Array]:
    """Return unbiased |G|² and tr Σ from squared gradient norms of batches of two sizes.

    |G|² = (B·|g_B|² - b·|g_b|²) / (B - b) and tr Σ = (|g_b|² - |g_B|²) / (1/b - 1/B), with b and B the small and the
    big size (McCandlish et al., 2018, appendix A.1). Both may be negative in a single measurement.

    >>> norms = split_norms(np.array([3.0]), np.array([1.5]), small_size=4, big_size=16)
    >>> [part.tolist() for part in norms]
    [[1.0], [8.0]]
    """
    if not 0 < small_size < big_size:
        raise ValueError(f"The small batch must be smaller than the big one. Found {small_size:g} and {big_size:g}.")
    signal = (big_size * big - small_size * small) / (big_size - small_size)
    return signal, (small - big) / (1 / small_size - 1 / big_size)


def read_series(measurements: pl.DataFrame, kind: NoiseKind, last_step: int | None = None) -> NoiseSeries:
    """Return the measurements of a kind up to a step; rows in which a value is missing or not finite are left out."""
    columns = NOISE_COLUMNS[kind]
    frame = measurements.select("step", *(pl.col(name).cast(pl.Float64) for name in columns.names)).sort("step")
    frame = frame.filter(pl.all_horizontal(pl.col(name).is_finite().fill_null(value=False) for name in columns.names))
    if last_step is not None:
        frame = frame.filter(pl.col("step") <= last_step)
    signals = [columns.signal] if columns.signal_high is None else [columns.signal, columns.signal_high]
    return NoiseSeries(
        frame["step"].to_numpy(),
        tuple(frame[name].to_numpy() for name in signals),
        frame[columns.noise].to_numpy(),
        columns.power,
    )


def estimate_noise_scale(series: NoiseSeries, level: float = LEVEL) -> NoiseScale:
    """Return the noise scale by the averages over all measurements: (mean noise / mean signal)^power.

    Measurements in a row that depend on each other are put into blocks, and the blocks are taken as independent. The
    interval is Fieller's, of all ratios that the two means allow: it is not symmetric, and has no upper end if the
    signal cannot be told from zero. The standard error is the jackknife's over blocks. Between two signals the value
    is the geometric mean of both ratios, and the interval covers what either allows.
    """
    blocks = make_blocks(len(series.steps), _block_length(_influence(series)))
    steps = (int(series.steps[0]), int(series.steps[-1])) if len(series.steps) else (0, 0)
    unresolved = NoiseScale(*steps, len(series.steps), Estimate())
    if len(blocks) < MIN_BLOCKS:
        reason = f"{len(series.steps)} measurements of the noise"
        if len(series.steps) >= MIN_BLOCKS:
            reason += f", of which neighbours depend on each other as if there were {len(blocks)},"
        return replace(unresolved, reason=f"{reason} are too few for an interval: {MIN_BLOCKS} are needed.")
    quantile = student_quantile(len(blocks) - 1, (1 + level) / 2)
    ends = [_fieller(_block_sums(signal, series.noise, blocks), quantile) for signal in series.signals]
    low, high = (None if end is None else max(end, 0.0) ** series.power for end in (ends[-1][0], ends[0][1]))
    if series.noise.mean() <= 0:
        reason = "The gradients of equal batches do not differ measurably."
        return replace(unresolved, estimate=Estimate(None, None, high), reason=reason)
    if high is None or not series.is_positive():
        reason = "The mean gradient cannot be told from zero beside its noise: more measurements are needed."
        return replace(unresolved, estimate=Estimate(None, low, None), reason=reason)
    value = _geometric_mean(series.ratios())
    left_out = np.array([_geometric_mean(ratios) for ratios in _ratios_without(series, blocks)])
    error = math.sqrt(_jackknife_variance(left_out))
    return replace(unresolved, estimate=Estimate(value, low, high), standard_error=error)


def estimate_over_training(series: NoiseSeries, batch_size: int, level: float = LEVEL) -> NoiseScale:
    """Return the mean of the noise scale over the progress of a training, which the steps to a goal depend on.

    A step at batch size B makes 1 / (1 + ℬ/B) of the progress of a step without noise (McCandlish et al., 2018,
    equation 2.8), so that this is the weight of the noise scale ℬ of a window, times its steps. A training with
    too few measurements for windows is one window.
    """
    whole = estimate_noise_scale(series, level)
    windows = _positive_windows(series)
    if len(windows) < 2:
        return whole
    parts = [series[window] for window in windows]
    ratios = np.array([part.ratios() for part in parts])
    influence = np.concatenate([_influence(part) for part in parts])
    length = min(_block_length(influence), min(len(window) for window in windows) // 2)
    blocks = [make_blocks(len(window), length) for window in windows]
    lengths = np.diff([series.steps[0], *(part.steps[-1] for part in parts)]).astype(float)[:, None]

    def average(ratios: Array) -> Array:
        weights = lengths / (1 + ratios / batch_size)
        return np.asarray((weights * ratios).sum(axis=0) / weights.sum(axis=0))

    variance = 0.0
    for number, (part, of_window) in enumerate(zip(parts, blocks, strict=True)):
        values = []
        for left_out in _ratios_without(part, of_window):
            changed = ratios.copy()
            changed[number] = left_out
            values.append(_geometric_mean(average(changed)))
        variance += _jackknife_variance(np.array(values))
    low, value, high = float(average(ratios)[-1]), _geometric_mean(average(ratios)), float(average(ratios)[0])
    error = math.sqrt(variance)
    if not error < value:  # also if it is not a number
        return whole
    freedom = sum(len(of_window) - 1 for of_window in blocks)
    factor = math.exp(student_quantile(freedom, (1 + level) / 2) * error / value)
    return replace(whole, estimate=Estimate(value, low / factor, high * factor), standard_error=error, reason="")


def noise_scale_windows(series: NoiseSeries) -> list[NoiseScale]:
    """Return the noise scale over training: one for each window of equally many measurements, in their order."""
    return [estimate_noise_scale(series[window]) for window in _windows(series, MAX_WINDOWS)]


def noise_scale_predictions(measurements: pl.DataFrame, batch_size: int, goal: Goal | None) -> list[Prediction]:
    """Return the predictions of the critical batch size from one trial: of each kind over its training and at its goal.

    Args:
        measurements: The trial's: a column ``step`` and the metrics, with columns of noise.
        batch_size: The trial's.
        goal: Measurements after the first one that reaches it are left out; all count if none does, or if it is None.

    Returns:
        The predictions; none if no noise was measured.
    """
    last = _last_step(measurements, goal)
    before = measurements.filter(pl.col("step") <= last)
    extra = float(before[EXAMPLES_COLUMN].fill_nan(0).fill_null(0).sum()) if EXAMPLES_COLUMN in before.columns else 0.0
    predictions = []
    for kind, columns in NOISE_COLUMNS.items():
        if not set(columns.names) <= set(measurements.columns):
            continue
        series = read_series(before, kind)
        at_goal = series[slice(-max(WINDOW, int(_AT_GOAL * len(series.steps))), None)]
        for name, scale in (
            (f"noise_scale_{kind}", estimate_over_training(series, batch_size)),
            (f"noise_scale_{kind}_at_goal", estimate_noise_scale(at_goal)),
        ):
            predictions.append(
                Prediction(
                    method=name,
                    quantity="critical_batch_size",
                    estimate=scale.estimate,
                    trial_steps=last + math.ceil(extra / batch_size),
                    examples=last * batch_size + round(extra),
                    assumption=_ASSUMPTIONS[kind],
                    reason=scale.reason,
                )
            )
    return predictions


def make_blocks(count: int, length: int) -> list[NDArray[np.intp]]:
    """Return rows in contiguous blocks of about this length."""
    return [rows for rows in np.array_split(np.arange(count), max(1, count // length)) if len(rows)]


def _influence(series: NoiseSeries) -> Array:
    """Return what each measurement adds to the ratio, up to a factor; zero on average."""
    signal = np.mean(series.signals, axis=0)
    mean = signal.mean() if len(signal) else 0.0
    influence = series.noise - signal * (series.noise.mean() / mean) if mean else np.zeros(len(signal))
    return np.asarray(influence - influence.mean() if len(influence) else influence)


def _block_length(influence: Array) -> int:
    """Return three times as many rows as measurements depend on those before; 1 if that cannot be seen.

    That number is the integrated autocorrelation time, summed while autocorrelations are above what chance makes.
    """
    count, variance = len(influence), float(influence @ influence)
    if count < MIN_ROWS_FOR_CORRELATION or variance == 0:
        return 1
    time = 1.0
    for lag in range(1, count // 2):
        correlation = float(influence[lag:] @ influence[:-lag]) / variance
        if correlation <= 1 / math.sqrt(count):
            break
        time += 2 * correlation
    length, most = (1 if time == 1 else math.ceil(3 * time)), count // MIN_BLOCKS
    return most if most < length <= 2 * most else length  # rather fewer rows in a block than no interval


def _ratios_without(series: NoiseSeries, blocks: Sequence[NDArray[np.intp]]) -> Array:
    """Return the ratios of the measurements without each block in turn, by each signal."""
    columns = np.array([*series.signals, series.noise])
    sums = np.array([columns[:, rows].sum(axis=1) for rows in blocks])
    sizes = np.array([len(rows) for rows in blocks])[:, None]
    means = (columns.sum(axis=1) - sums) / (columns.shape[1] - sizes)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((means[:, -1:] / means[:, :-1]) ** series.power)


def _jackknife_variance(values: Array) -> float:
    """Return the variance of a statistic from its values without each of independent blocks."""
    return (len(values) - 1) / len(values) * float(np.sum((values - values.mean()) ** 2))


def _block_sums(signal: Array, noise: Array, blocks: Sequence[NDArray[np.intp]]) -> tuple[Array, Array]:
    """Return the means of signal and noise and their covariance, from blocks that are independent of each other."""
    center = np.array([signal.mean(), noise.mean()])
    sums = np.array([[np.sum(signal[rows] - center[0]), np.sum(noise[rows] - center[1])] for rows in blocks])
    return center, sums.T @ sums * (len(blocks) / (len(blocks) - 1)) / len(signal) ** 2


def _fieller(moments: tuple[Array, Array], quantile: float) -> tuple[float | None, float | None]:
    """Return the ends of the ratios that two means allow: (n - R·s)² ≤ t²·Var(n - R·s); None: no bound."""
    (s, n), covariance = moments
    spread = quantile**2 * covariance
    a, b, c = s * s - spread[0, 0], s * n - spread[0, 1], n * n - spread[1, 1]
    root = b * b - a * c
    if a > 0 and s > 0:
        return float((b - math.sqrt(max(root, 0.0))) / a), float((b + math.sqrt(max(root, 0.0))) / a)
    # the signal may be zero: ratios are bounded from below only, by the root that is positive
    bounded = root > 0 and n > 0 and c > 0 and a < 0
    return (float((b - math.sqrt(root)) / a) if bounded else None), None


def _windows(series: NoiseSeries, most: int) -> list[NDArray[np.intp]]:
    count = len(series.steps)
    return np.array_split(np.arange(count), max(1, min(most, count // WINDOW)))


def _positive_windows(series: NoiseSeries) -> list[NDArray[np.intp]]:
    """Return as many windows as have a positive signal and noise each; one if there are no several."""
    for most in range(MAX_WINDOWS, 1, -1):
        windows = _windows(series, most)
        if all(series[window].is_positive() for window in windows):
            return windows
    return _windows(series, 1)


def _geometric_mean(ratios: Array) -> float:
    return float(np.prod(ratios) ** (1 / len(ratios)))


def _last_step(measurements: pl.DataFrame, goal: Goal | None) -> int:
    """Return the first step that reaches the goal; the last step if none does."""
    steps = measurements.sort("step")
    if goal is not None and goal.metric in steps.columns:
        values = steps[goal.metric].cast(pl.Float64).fill_null(math.nan).to_list()
        for step, value in zip(steps["step"].to_list(), values, strict=True):
            if goal.is_reached_by(value):
                return int(step)
    return int(steps["step"].to_numpy().max(initial=0))
