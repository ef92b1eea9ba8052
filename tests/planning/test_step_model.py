"""The model of step times against data made from known parameters."""

import functools
import math

import numpy as np
import pytest

from batchscale.errors import PlanningError
from batchscale.planning.step_form import Form, Layout, Overlap
from batchscale.planning.step_model import EXTRAPOLATED, INTERPOLATED, fit_step_model, layout_of
from batchscale.planning.step_times import StepTime

TRUE = {"latency_s": 0.05, "per_example_s": 0.002, "sync_within_s": 0.03, "sync_between_s": 0.09}
FORM = Form(("sync_within", "sync_between"))
PLACES = [(1, 1, 8), (1, 1, 32), (1, 1, 128), (1, 2, 64), (1, 4, 256), (1, 4, 64), (2, 4, 256), (4, 4, 512), (2, 2, 32),
          (1, 1, 64), (4, 2, 128), (1, 2, 256)]  # fmt: skip

SHARED = Form(("sync",))
SHARED_TRUE = {"latency_s": 0.05, "per_example_s": 0.002, "sync_s": 0.06}
SHARED_PLACES = [(1, 1, 8), (1, 1, 128), (1, 2, 64), (2, 4, 256), (1, 4, 256), (2, 2, 32), *PLACES[5:]]


def made(places, form=FORM, noise=0.0, seed=0, values=TRUE):
    rng = np.random.default_rng(seed)
    exact = [StepTime("D", h, d, b, 1.0) for h, d, b in places]
    times = form.times(np.log([values[name] for name in form.names]), layout_of(exact))
    times = times * np.exp(noise * rng.standard_normal(len(times)))
    return [StepTime("D", h, d, b, float(t)) for (h, d, b), t in zip(places, times, strict=True)]


@functools.cache
def noisy_models(count):
    """Twelve models, each of so many points that are 5 % off."""
    return [fit_step_model(made(SHARED_PLACES[:count], SHARED, 0.05, seed, SHARED_TRUE)) for seed in range(12)]


def test_parameters_are_recovered_without_noise():
    model = fit_step_model(made(PLACES))
    assert model.form == FORM
    for parameter in model.parameters:
        assert parameter.value == pytest.approx(TRUE[parameter.name], rel=1e-3)


@pytest.mark.parametrize("count", [6, pytest.param(8, marks=pytest.mark.slow), 12])
def test_parameters_are_recovered_with_noise(count):
    """5 % noise. Three standard errors are rarely exceeded, though the form is chosen from the same few points."""
    hits = total = 0
    for model in noisy_models(count):
        for parameter in model.parameters:
            if parameter.name in SHARED_TRUE and parameter.is_known:
                total += 1
                hits += abs(math.log(parameter.value / SHARED_TRUE[parameter.name])) < 3 * parameter.relative_error
    assert total >= 20 and hits >= 0.85 * total


@pytest.mark.parametrize(("count", "bound"), [(6, 0.2), pytest.param(8, 0.15, marks=pytest.mark.slow), (12, 0.12)])
def test_predictions_are_good_with_noise(count, bound):
    """Points that are 5 % off each cannot give much better predictions; nine of ten are within a few times that."""
    at = Layout(np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 8.0]), np.array([48.0, 48.0, 32.0]))
    exact = SHARED.times(np.log([SHARED_TRUE[name] for name in SHARED.names]), at)
    errors = [np.abs(model.predict(at)[0] / exact - 1) for model in noisy_models(count)]
    assert np.median(errors) < 0.06 and np.quantile(errors, 0.9) < bound


@pytest.mark.parametrize("places", [PLACES, PLACES[:7]], ids=["12 points", "7 points"])
def test_intervals_cover_the_truth_even_where_the_form_is_too_simple(places):
    """90 % intervals, from a form that the data chose itself: at least 75 % must hold.

    Seven points are too few for the four parameters of the truth: the form is simpler, and its interval must say so.
    """
    at = Layout(np.array([1.0, 2.0]), np.array([2.0, 4.0]), np.array([48.0, 24.0]))
    exact = FORM.times(np.log([TRUE[name] for name in FORM.names]), at)
    inside = []
    for seed in range(20):
        found, width = fit_step_model(made(places, noise=0.05, seed=seed)).predict(at)
        inside.append(np.abs(np.log(found / exact)) < width)
    assert np.mean(inside) >= 0.75


def test_it_says_what_the_points_do_not_determine():
    tiny = {**TRUE, "sync_within_s": 1e-7, "sync_between_s": 1e-7}
    model = fit_step_model(made(PLACES, noise=0.05, seed=3, values=tiny))
    unsure = {parameter.name for parameter in model.parameters if not parameter.is_known}
    assert any(name.startswith("sync") for name in unsure)


def test_as_many_points_as_parameters_have_no_interval():
    model = fit_step_model(made([(1, 1, 8), (1, 1, 64), (1, 2, 64), (2, 2, 64)]))
    assert model.freedom == 0 and model.aicc is None
    _, width = model.predict(layout_of(model.times))
    assert np.isnan(width).all()
    assert not any(parameter.is_known for parameter in model.parameters)


def test_overlap_is_found():
    form = Form(("sync",), Overlap.MAX)
    values = {"latency_s": 0.01, "per_example_s": 0.002, "sync_s": 0.1}
    places = [
        (1, 1, 8),
        (1, 1, 64),
        (1, 1, 128),
        (1, 2, 16),
        (1, 2, 64),
        (1, 2, 256),
        (1, 4, 64),
        (1, 4, 512),
        (2, 4, 64),
    ]
    model = fit_step_model(made(places, form, 0.005, 1, values))
    assert model.form.overlap is not Overlap.SUM
    assert abs(model.residuals).max() < 0.05


def test_a_kind_of_place_that_was_never_timed_is_not_predicted():
    model = fit_step_model(made([(1, 1, 8), (1, 1, 32), (1, 1, 64), (1, 1, 128)], Form()))
    found, _ = model.predict(Layout(np.array([2.0, 1.0]), np.array([2.0, 1.0]), np.array([32.0, 256.0])))
    assert math.isnan(found[0]) and found[1] > 0


def test_one_share_of_a_batch_says_nothing_of_others():
    model = fit_step_model([StepTime("D", 1, 1, 32, 0.1)])
    found, _ = model.predict(Layout(np.ones(2), np.ones(2), np.array([32.0, 64.0])))
    assert found[0] == pytest.approx(0.1) and math.isnan(found[1])


def test_extrapolation_is_marked():
    model = fit_step_model(made(PLACES))
    at = Layout(np.array([1.0, 1.0, 8.0]), np.array([1.0, 1.0, 32.0]), np.array([100.0, 500.0, 16.0]))
    assert model.kinds(at) == [INTERPOLATED, EXTRAPOLATED, EXTRAPOLATED]


def test_times_are_never_negative_and_grow_with_work():
    model = fit_step_model(made(PLACES, noise=0.3, seed=5))
    shares = np.arange(1.0, 400.0)
    found, _ = model.predict(Layout(np.ones(len(shares)), np.ones(len(shares)), shares))
    assert (found > 0).all() and (np.diff(found) >= 0).all()


def test_repeated_measurements_are_one_place():
    times = [StepTime("D", 1, 1, 32, seconds) for seconds in (0.09, 0.1, 0.11)]
    (merged,) = fit_step_model(times).times
    assert merged.step_time_s == pytest.approx(0.1) and merged.low < 0.1 < merged.high


def test_nothing_to_fit_is_an_error():
    with pytest.raises(PlanningError, match="Found none"):
        fit_step_model([])
