"""Losses and metrics against plain numpy; average precision against an independent version and the exact value."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchscale.instruments.task import SOUND
from batchscale.workloads.metrics.declaration import metric_directions, task_metrics
from batchscale.workloads.metrics.sums import measure_average_precision, value_average_precision
from batchscale.workloads.tasks import Task

sys.path.insert(0, str(Path(__file__).parent))
from generated import cheap_jit

RANDOM = np.random.default_rng(0)


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def metric(task, name):
    return next(metric for metric in task_metrics(task) if metric.name == name)


def measured(task, name, outputs, batch, weights):
    found = metric(task, name)
    measure = cheap_jit(lambda *given: found.value(found.measure(*given)))
    return float(measure(outputs, batch, np.asarray(weights, np.float32)))


def loss_of(task, outputs, batch, values):
    def total_and_weight(*given):
        loss = task.make_loss({})(*given)
        return loss.total, loss.weight

    return map(float, cheap_jit(total_and_weight)(outputs, batch, values))


@pytest.fixture
def classes():
    return RANDOM.normal(size=(6, 5)).astype(np.float32) * 3, np.array([0, 4, 2, 2, 1, 3])


@pytest.mark.parametrize("smoothing", [None, 0.0, 0.1])
def test_softmax_loss_is_the_sum_of_cross_entropies_with_smoothed_targets(classes, smoothing):
    logits, labels = classes
    values = {} if smoothing is None else {"label_smoothing": np.float32(smoothing)}
    total, weight = loss_of(Task.CLASSIFICATION, logits, {"labels": labels}, values)
    targets = np.eye(5)[labels] * (1 - (smoothing or 0)) + (smoothing or 0) / 5
    assert total == pytest.approx(-(targets * log_softmax(logits.astype(np.float64))).sum(), rel=1e-5)
    assert weight == 6


@pytest.mark.parametrize("smoothing", [None, 0.1])
def test_sigmoid_loss_sums_over_classes_with_smoothed_targets(smoothing):
    logits, labels = RANDOM.normal(size=(4, 7)), RANDOM.integers(0, 2, size=(4, 7))
    values = {} if smoothing is None else {"label_smoothing": np.float32(smoothing)}
    total, weight = loss_of(Task.MULTILABEL, logits, {"labels": labels}, values)
    targets = labels * (1 - (smoothing or 0)) + (smoothing or 0) / 2
    chance = 1 / (1 + np.exp(-logits))
    expected = -(targets * np.log(chance) + (1 - targets) * np.log(1 - chance)).sum()
    assert total == pytest.approx(expected, rel=1e-5)
    assert weight == 4


def test_language_loss_counts_real_tokens_only():
    logits, labels = RANDOM.normal(size=(3, 4, 6)), RANDOM.integers(0, 6, size=(3, 4))
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
    batch = {"labels": labels, "mask": mask}
    total, weight = loss_of(Task.LANGUAGE, logits, batch, {})
    errors = -np.take_along_axis(log_softmax(logits), labels[..., None], -1)[..., 0]
    assert total == pytest.approx((errors * mask).sum(), rel=1e-5)
    assert weight == 7


def test_classification_metrics(classes):
    logits, labels = classes
    weights = np.array([1, 1, 1, 1, 1, 0])
    batch = {"labels": labels}
    errors = -log_softmax(logits.astype(np.float64))[np.arange(6), labels]
    wrong = logits.argmax(axis=1) != labels
    found = measured(Task.CLASSIFICATION, "cross_entropy_error", logits, batch, weights)
    assert found == pytest.approx(errors[:5].mean(), rel=1e-5)
    found = measured(Task.CLASSIFICATION, "classification_error", logits, batch, weights)
    assert found == pytest.approx(wrong[:5].mean())


def test_padding_that_is_not_a_number_counts_for_nothing(classes):
    logits, labels = classes
    spoiled = np.concatenate([logits, np.full((1, 5), np.nan, np.float32)])
    batch = {"labels": np.asarray([*labels, 0])}
    whole = measured(Task.CLASSIFICATION, "cross_entropy_error", logits, {"labels": labels}, np.ones(6))
    found = measured(Task.CLASSIFICATION, "cross_entropy_error", spoiled, batch, [1] * 6 + [0])
    assert found == pytest.approx(whole, rel=1e-6)


def test_token_error_is_total_over_total_not_a_mean_of_means():
    logits, labels = RANDOM.normal(size=(2, 3, 4)), RANDOM.integers(0, 4, size=(2, 3))
    mask = np.array([[1, 1, 1], [1, 0, 0]])
    batch = {"labels": labels, "mask": mask}
    errors = -np.take_along_axis(log_softmax(logits), labels[..., None], -1)[..., 0]
    found = measured(Task.LANGUAGE, "cross_entropy_error", logits, batch, np.ones(2))
    assert found == pytest.approx((errors * mask).sum() / 4, rel=1e-5)
    assert found > 0


def test_sums_add_up_over_batches():
    logits, labels = RANDOM.normal(size=(10, 8)), RANDOM.integers(0, 2, size=(10, 8))
    for found in task_metrics(Task.MULTILABEL):
        measure, value = cheap_jit(found.measure), cheap_jit(found.value)
        whole = measure(logits, {"labels": labels}, np.ones(10, np.float32))
        parts = [
            measure(logits[part], {"labels": labels[part]}, np.ones(5, np.float32))
            for part in (slice(0, 5), slice(5, 10))
        ]
        total = jax.tree.map(np.add, *parts)
        assert float(value(total)) == pytest.approx(float(value(whole)), rel=1e-5)


def test_every_task_has_its_metrics_in_the_order_of_the_published_columns():
    expected = {
        Task.CLASSIFICATION: {"cross_entropy_error": False, "classification_error": False},
        Task.MULTILABEL: {"cross_entropy_error": False, "average_precision": True},
        Task.LANGUAGE: {"cross_entropy_error": False},
        Task.REGRESSION: {"squared_error": False, "absolute_error": False},
        SOUND: {"total_loss": False},
        Task.QUADRATIC: {"loss": False},
    }
    for task in expected:
        assert list(metric_directions(task).items()) == list(expected[task].items())
        assert [(m.name, m.maximize) for m in task_metrics(task)] == list(expected[task].items())


# ---- average precision


def independent_average_precision(scores, labels):
    """The careful interpolation as its definition reads: thresholds one by one, areas as integrals, in float64.

    Between two thresholds true positives grow linearly with predicted ones; the area of a piece is the integral of
    precision over recall, taken numerically here where the code under test has the logarithm.
    """
    inner = [(i + 1) / 199 for i in range(198)]
    thresholds = np.array([-1e-7, *inner, 1 + 1e-7], np.float32)
    positives = labels.sum()
    area = 0.0
    previous = (0.0, 0.0)
    for threshold in thresholds[::-1]:
        chosen = scores > threshold
        point = (float(chosen.sum()), float((chosen & (labels > 0)).sum()))
        (p1, t1), (p2, t2) = previous, point
        if p2 > p1 and t2 > t1:
            slope = (t2 - t1) / (p2 - p1)
            predicted = np.linspace(p1, p2, 4001)
            precision = (t1 + slope * (predicted - p1)) / np.maximum(predicted, 1e-12)
            precision[predicted == 0] = slope
            area += np.trapezoid(precision, predicted) * slope / positives
        previous = point
    return area


def exact_average_precision(scores, labels):
    """Equation 7 of the paper: the mean over positives of the precision at their rank."""
    order = np.argsort(-scores.ravel(), kind="stable")
    relevant = labels.ravel()[order]
    precision = np.cumsum(relevant) / np.arange(1, len(relevant) + 1)
    return (precision * relevant).sum() / relevant.sum()


def examples(seed, shape=(40, 25), rate=0.15, skill=1.5):
    random = np.random.default_rng(seed)
    labels = (random.random(shape) < rate).astype(np.int32)
    labels[0, 0] = 1
    logits = (random.normal(size=shape) + skill * labels - 1).astype(np.float32)
    return logits, labels


@cheap_jit
def average_precision(logits, batch, weights):
    return value_average_precision(measure_average_precision(logits, batch, weights))


sigmoid = cheap_jit(jax.nn.sigmoid)


def ours(logits, labels, weights=None):
    weights = np.ones(len(logits), np.float32) if weights is None else weights
    return float(average_precision(np.asarray(logits, np.float32), {"labels": np.asarray(labels, np.int32)}, weights))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), skill=st.floats(-1, 4), rate=st.floats(0.01, 0.9))
def test_average_precision_equals_an_independent_careful_interpolation(seed, skill, rate):
    logits, labels = examples(seed, rate=rate, skill=skill)
    scores = np.asarray(sigmoid(logits))  # the same float32 scores: thresholds may be met exactly
    expected = independent_average_precision(scores, labels)
    assert ours(logits, labels) == pytest.approx(expected, rel=2e-3)  # the trapezoids of the first piece


@pytest.mark.parametrize("skill", [0.0, 2.0, 5.0])
def test_average_precision_approximates_the_exact_one(skill):
    logits, labels = examples(7, shape=(400, 100), skill=skill)
    assert ours(logits, labels) == pytest.approx(exact_average_precision(logits, labels), abs=0.01)  # 200 thresholds


def test_perfect_and_hopeless_predictions():
    labels = np.array([[1, 0, 0, 1]])
    assert ours(np.where(labels, 8.0, -8.0), labels) == pytest.approx(1.0)
    assert ours(np.zeros((1, 4)), labels) == pytest.approx(0.5)  # no ranking at all: the part of positives
    assert np.isnan(ours(np.zeros((1, 4)), np.zeros((1, 4))))


def test_padding_rows_are_not_ranked():
    logits, labels = examples(3)
    weights = np.asarray([1.0] * 30 + [0.0] * 10, np.float32)
    assert ours(logits, labels, weights) == pytest.approx(ours(logits[:30], labels[:30]), rel=1e-6)


def test_counts_stay_exact_beyond_what_float32_and_int32_hold():
    ones = np.ones((1, 70_000), np.float32)
    counts = cheap_jit(measure_average_precision)(0 * ones, {"labels": ones}, np.ones(1, np.float32))
    total = jax.tree.map(
        lambda leaf: np.asarray(leaf) * leaf.dtype.type(60_000), counts
    )  # 4.2 billion pairs, as batches would add up
    high, low = (np.asarray(leaf, np.int64) for leaf in total)
    assert (high * 2**16 + low)[0, 0] == 70_000 * 60_000
    assert float(cheap_jit(value_average_precision)(total)) == pytest.approx(1.0)


def test_bits_per_byte_is_the_total_over_the_bytes_that_tokens_stand_for():
    logits, labels = RANDOM.normal(size=(2, 3, 4)), RANDOM.integers(0, 4, size=(2, 3))
    mask, sizes = np.array([[1, 1, 1], [1, 0, 0]]), np.array([[2, 5, 1], [3, 7, 7]])
    batch = {"labels": labels, "mask": mask, "bytes": sizes}
    errors = -np.take_along_axis(log_softmax(logits), labels[..., None], -1)[..., 0]
    total = (errors * mask).sum()
    assert measured(Task.TEXT, "bits_per_byte", logits, batch, np.ones(2)) == pytest.approx(
        total / np.log(2) / (2 + 5 + 1 + 3), rel=1e-5
    )
    for name in ("loss", "cross_entropy_error"):
        assert measured(Task.TEXT, name, logits, batch, np.ones(2)) == pytest.approx(total / 4, rel=1e-5)
