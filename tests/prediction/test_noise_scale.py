"""The estimators of the gradient noise scale: unbiased on a known covariance, with intervals that cover it."""

import math

import numpy as np
import polars as pl
import pytest

from batchscale.prediction.noise_scale import (
    NoiseSeries,
    estimate_noise_scale,
    estimate_over_training,
    noise_scale_predictions,
    noise_scale_windows,
    read_series,
    split_norms,
)
from batchscale.spec.goal import Goal
from batchscale.spec.gradient_noise import NOISE_COLUMNS, NoiseKind

REPEATS = 1000
SIZE, PARTS, ROWS = 8, 4, 24
SHAPE = (6, 10)  # of a matrix of parameters
RNG = np.random.default_rng(7)
GRADIENT = RNG.normal(size=SHAPE) * 0.25
DEVIATIONS = np.exp(RNG.normal(size=SHAPE) * 0.3)  # of single examples, independent between coordinates
SCALE = np.exp(RNG.normal(size=SHAPE))  # 1 / (√v + ε)
SHRINKAGE = math.sqrt(2 / (PARTS - 1)) * math.gamma(PARTS / 2) / math.gamma((PARTS - 1) / 2)


def draw_parts(rng):
    """The mean gradients of the parts of every row: normal, with a known covariance."""
    return GRADIENT + rng.normal(size=(ROWS, PARTS, *SHAPE)) * DEVIATIONS / math.sqrt(SIZE)


def polar(matrix):
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return left @ right


def columns_of(kind, parts):
    """The columns of a kind as the engine measures them, by a second code."""
    mean, first, second = parts.mean(1), parts[:, ::2].mean(1), parts[:, 1::2].mean(1)
    axes = (-2, -1)
    if kind in (NoiseKind.EUCLIDEAN, NoiseKind.PRECONDITIONED):
        scale = 1.0 if kind is NoiseKind.EUCLIDEAN else SCALE
        small, big = (scale * parts**2).sum(axes).mean(1), (scale * mean**2).sum(axes)
        signal, noise = split_norms(small, big, SIZE, SIZE * PARTS)
        return (signal,), noise
    if kind is NoiseKind.SIGN:
        low = ((first * np.sign(second)).sum(axes) + (second * np.sign(first)).sum(axes)) / 2
        noise = (math.sqrt(SIZE) * parts.std(axis=1, ddof=1)).sum(axes) / SHRINKAGE
        return (low, np.abs(mean).sum(axes)), noise
    low = ((first * polar(second)).sum(axes) + (second * polar(first)).sum(axes)) / 2
    centred = parts - mean[:, None]
    covariance = np.einsum("rpij,rpkj->rik", centred, centred) * SIZE / (PARTS - 1)
    noise = np.sqrt(np.linalg.eigvalsh(covariance).clip(0)).sum(-1)
    return (low, np.linalg.svd(mean, compute_uv=False).sum(-1)), noise


TRUTH = {
    NoiseKind.EUCLIDEAN: ((GRADIENT**2).sum(), (DEVIATIONS**2).sum()),
    NoiseKind.PRECONDITIONED: ((SCALE * GRADIENT**2).sum(), (SCALE * DEVIATIONS**2).sum()),
    NoiseKind.SIGN: (np.abs(GRADIENT).sum(), DEVIATIONS.sum()),
    NoiseKind.SPECTRAL: (np.linalg.norm(GRADIENT, "nuc"), np.sqrt((DEVIATIONS**2).sum(1)).sum()),
}


@pytest.fixture(scope="module")
def repetitions():
    """For every kind the averages, estimates and standard errors of a thousand trainings of 24 measurements each."""
    rng = np.random.default_rng(11)
    made = {kind: [] for kind in NoiseKind}
    for _ in range(REPEATS):
        parts = draw_parts(rng)
        for kind in NoiseKind:
            signals, noise = columns_of(kind, parts)
            series = NoiseSeries(np.arange(ROWS), signals, noise, NOISE_COLUMNS[kind].power)
            averages = [*(signal.mean() for signal in signals), noise.mean()]
            made[kind].append((averages, estimate_noise_scale(series)))
    return made


def within_chance(count, level=0.95, deviations=4.0):
    return abs(count - level * REPEATS) <= deviations * math.sqrt(REPEATS * level * (1 - level))


@pytest.mark.parametrize("kind", [NoiseKind.EUCLIDEAN, NoiseKind.PRECONDITIONED])
def test_signal_and_noise_are_unbiased(repetitions, kind):
    averages = np.array([values for values, _ in repetitions[kind]])
    errors = averages.std(axis=0, ddof=1) / math.sqrt(REPEATS)
    assert np.all(np.abs(averages.mean(axis=0) - TRUTH[kind]) < 4 * errors)


@pytest.mark.parametrize("kind", [NoiseKind.EUCLIDEAN, NoiseKind.PRECONDITIONED])
def test_intervals_cover_the_truth_at_their_level_and_errors_are_those_of_repetitions(repetitions, kind):
    signal, noise = TRUTH[kind]
    scales = [scale for _, scale in repetitions[kind]]
    assert within_chance(sum(scale.estimate.includes(noise / signal) for scale in scales))
    values = np.array([scale.estimate.value for scale in scales if scale.estimate.value is not None])
    errors = np.array([scale.standard_error for scale in scales if scale.standard_error is not None])
    assert len(values) > 0.99 * REPEATS
    assert np.median(errors) == pytest.approx(values.std(), rel=0.15)


@pytest.mark.parametrize("kind", [NoiseKind.SIGN, NoiseKind.SPECTRAL])
def test_norms_without_an_unbiased_estimate_are_bracketed_and_their_bias_is_as_documented(repetitions, kind):
    signal, noise = TRUTH[kind]
    low, high, measured = np.mean([values for values, _ in repetitions[kind]], axis=0)
    assert low < signal < high
    bias = {NoiseKind.SIGN: (-0.31, 0.32, 0.0), NoiseKind.SPECTRAL: (-0.34, 0.27, -0.03)}[kind]
    assert np.array([low / signal, high / signal, measured / noise]) - 1 == pytest.approx(bias, abs=0.02)


@pytest.mark.parametrize("kind", [NoiseKind.SIGN, NoiseKind.SPECTRAL])
def test_their_intervals_cover_the_truth_at_least_at_their_level(repetitions, kind):
    signal, noise = TRUTH[kind]
    scales = [scale for _, scale in repetitions[kind]]
    covered = sum(scale.estimate.includes((noise / signal) ** 2) for scale in scales)
    assert covered >= 0.95 * REPEATS - 4 * math.sqrt(REPEATS * 0.95 * 0.05)
    resolved = [scale for scale in scales if scale.estimate.value is not None]
    assert len(resolved) > 0.99 * REPEATS
    values = np.array([scale.estimate.value for scale in resolved])
    errors = np.array([scale.standard_error for scale in resolved])
    middle = np.median(values)  # the errors cover what the estimator itself tends to, at their level
    assert within_chance(np.sum(np.abs(values - middle) < 2.07 * errors))


def test_an_average_of_ratios_would_be_wrong():
    """Why averages come first: single measurements have signals near zero, and below."""
    signals, noise = columns_of(NoiseKind.EUCLIDEAN, draw_parts(np.random.default_rng(0)) - 0.8 * GRADIENT)
    signal, trace = 0.04 * TRUTH[NoiseKind.EUCLIDEAN][0], TRUTH[NoiseKind.EUCLIDEAN][1]
    assert min(signals[0]) < 0
    assert abs(np.mean(noise / signals[0]) / (trace / signal) - 1) > 0.5


def autocorrelated(rng, count, correlation):
    values = rng.normal(size=count)
    for i in range(1, count):
        values[i] = correlation * values[i - 1] + math.sqrt(1 - correlation**2) * values[i]
    return values


@pytest.mark.parametrize(("correlation", "least"), [(0.0, 0.93), (0.5, 0.90)])
def test_measurements_that_depend_on_each_other_are_put_into_blocks(correlation, least):
    rng, covered = np.random.default_rng(3), 0
    for _ in range(400):
        signal, noise = (autocorrelated(rng, 120, correlation) for _ in range(2))
        series = NoiseSeries(np.arange(120), (1 + 0.5 * signal,), 50 + 10 * noise)
        covered += estimate_noise_scale(series).estimate.includes(50)
    assert covered / 400 >= least


def test_a_gradient_of_zero_is_not_resolved_with_a_lower_bound_and_a_reason():
    rng, unresolved = np.random.default_rng(5), []
    for _ in range(200):
        series = NoiseSeries(np.arange(40), (rng.normal(size=40) * 0.1,), 10 + rng.normal(size=40))
        scale = estimate_noise_scale(series)
        unresolved += [scale] if scale.estimate.value is None else []
    assert len(unresolved) >= 188  # at most 2.5 % of zeros seem positive, and chance
    bounds = [scale.estimate.low for scale in unresolved if scale.estimate.low is not None]
    assert len(bounds) >= 180 and min(bounds) > 100
    assert all(scale.estimate.high is None and "cannot be told from zero" in scale.reason for scale in unresolved)


def test_no_noise_and_too_few_measurements_have_a_reason_instead_of_a_number():
    rng = np.random.default_rng(5)
    silent = estimate_noise_scale(NoiseSeries(np.arange(40), (np.ones(40),), -1 + 0.1 * rng.normal(size=40)))
    assert silent.estimate.value is None and "do not differ" in silent.reason
    few = estimate_noise_scale(NoiseSeries(np.arange(3), (np.ones(3),), np.ones(3)))
    assert few.estimate.value is None and few.reason.startswith("3 measurements")
    nothing = estimate_noise_scale(NoiseSeries(np.arange(0), (np.ones(0),), np.ones(0)))
    assert nothing.estimate.value is None and nothing.num_measurements == 0


def drifting(rng, rows=64):
    """A training whose noise scale grows from 20 to 100 examples."""
    signals = np.linspace(1, 0.2, rows)
    return NoiseSeries(np.arange(rows) * 100, (signals + 0.1 * rng.normal(size=rows),), 20 + 2 * rng.normal(size=rows))


def test_over_training_the_noise_scale_is_weighted_by_progress():
    ratios = 20 / np.linspace(1, 0.2, 64)
    weights = 1 / (1 + ratios / 32)
    truth = float((weights * ratios).sum() / weights.sum())
    rng = np.random.default_rng(9)
    scales = [estimate_over_training(drifting(rng), batch_size=32) for _ in range(200)]
    assert np.mean([scale.estimate.value for scale in scales]) == pytest.approx(truth, rel=0.03)
    assert sum(scale.estimate.includes(truth) for scale in scales) >= 182


def test_windows_follow_the_training():
    windows = noise_scale_windows(drifting(np.random.default_rng(1)))
    assert len(windows) == 8 and windows[0].first_step == 0 and windows[-1].last_step == 6300
    assert windows[0].estimate.value < 30 and windows[-1].estimate.value > 60


def frame_of(rows=64):
    series = drifting(np.random.default_rng(2), rows)
    signal, noise = NOISE_COLUMNS[NoiseKind.EUCLIDEAN].names
    return pl.DataFrame(
        {
            "step": series.steps,
            "val/loss": np.linspace(1, 0, rows),
            signal: series.signals[0],
            noise: series.noise,
            "train/gradient_noise_examples": np.full(rows, 10.0),
        }
    )


def test_predictions_stop_at_the_goal_and_count_what_was_trained():
    frame = frame_of()
    over, at_goal = noise_scale_predictions(frame, 32, Goal.parse("val/loss < 0.5"))
    assert (over.method, at_goal.method) == ("noise_scale_euclidean", "noise_scale_euclidean_at_goal")
    assert over.trial_steps == 3200 + math.ceil(33 * 10 / 32) and over.examples == 3200 * 32 + 330
    assert over.estimate.value < at_goal.estimate.value < 45  # the noise scale at step 3,200 is 33
    never = noise_scale_predictions(frame, 32, Goal.parse("val/loss < -1"))
    assert never[0].trial_steps > 6300


def test_rows_without_values_are_left_out_and_records_without_noise_have_no_predictions():
    frame = frame_of()
    signal = NOISE_COLUMNS[NoiseKind.EUCLIDEAN].signal
    gaps = frame.with_columns(pl.when(pl.col("step") % 200 == 0).then(pl.col(signal)).otherwise(math.nan).alias(signal))
    gaps = gaps.with_columns(pl.when(pl.col("step") > 0).then(pl.col(signal)).alias(signal))
    assert len(read_series(gaps, NoiseKind.EUCLIDEAN).steps) == 31
    assert noise_scale_predictions(frame.select("step", "val/loss"), 32, None) == []


def test_sizes_must_differ():
    with pytest.raises(ValueError, match="smaller than the big one"):
        split_norms(np.ones(1), np.ones(1), 8, 8)
