"""The Gauss-Newton matrix, the gradient noise and their spectra against dense matrices in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from batchscale.noisy_quadratic import NoisyQuadratic, best_steps_to_loss
from batchscale.noisy_quadratic.lanczos import lanczos_quadrature
from batchscale.prediction.model_curve import read_model_curve
from batchscale.prediction.noisy_quadratic import TunedPoint, noisy_quadratic_predictions
from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.workload_name import WorkloadName
from batchscale.training.spectrum import Curvature, measure_spectrum
from batchscale.training.state import init_trial
from batchscale.training.training_data import make_probe
from batchscale.workloads.registry import get_workload


def make_state(workload, seed=0):
    values = {name: jnp.float32(0.1 if value is None else value) for name, value in workload.defaults.items()}
    return init_trial(workload, jnp.uint32(seed), values, make_probe(workload.dataset), 1000.0)


def test_products_are_those_of_the_dense_gauss_newton_matrix():
    workload = get_workload(WorkloadSpec(WorkloadName("digits", "fc_4", "sgd")))
    state = make_state(workload)
    curvature = Curvature(workload, state, examples=200)
    flat, unravel = ravel_pytree(state.params)
    stored = workload.dataset.splits["train"].arrays
    assert curvature.num_examples == min(200, len(stored["inputs"]))
    batch = workload.dataset.prepare({name: jnp.concatenate([b[name] for b in curvature._batches]) for name in stored})

    def outputs_of(params):
        return workload.model.apply(
            unravel(params), state.model_state, batch["inputs"], train=False, key=jax.random.key(0)
        )[0]

    jacobian = np.asarray(jax.jacobian(outputs_of)(flat), dtype=np.float64)  # examples × classes × parameters
    scores = np.exp(np.asarray(outputs_of(flat), dtype=np.float64))
    chances = scores / scores.sum(axis=1, keepdims=True)
    bend = np.einsum("nc,cd->ncd", chances, np.eye(chances.shape[1])) - np.einsum("nc,nd->ncd", chances, chances)
    dense = np.einsum("ncp,ncd,ndq->pq", jacobian, bend, jacobian) / len(chances)
    random = np.random.default_rng(0)
    for vector in random.normal(size=(6, len(flat))):
        expected = dense @ vector
        np.testing.assert_allclose(curvature.product(vector), expected, atol=1e-4 * np.abs(expected).max())
    nodes, weights = lanczos_quadrature(curvature.product, random.normal(size=len(flat)), 16)
    assert nodes[-1] == pytest.approx(np.linalg.eigvalsh(dense)[-1], rel=1e-3)
    assert nodes[0] > -1e-4 * nodes[-1] and np.all(weights >= 0)


def test_traces_lie_within_their_errors_and_the_prediction_near_the_exact_curve():
    workload = get_workload(WorkloadSpec(WorkloadName("noisy_quadratic", "quadratic", "sgd"), {"dimension": 200}))
    problem, size, goal = NoisyQuadratic(dimension=200), 16, 0.05
    best = best_steps_to_loss(problem, size, goal)
    start = make_state(workload)
    h, sample = jnp.asarray(problem.curvatures, jnp.float32), workload.dataset.splits["train"].sample

    def step(theta, key):
        return theta - best.learning_rate * (h * theta + sample(key, size)["inputs"][0]), None

    theta, _ = jax.lax.scan(step, start.params["theta"], jax.random.split(jax.random.key(1), best.steps))
    measured = measure_spectrum(workload, start, start._replace(params={"theta": theta}))
    assert measured.parameters == 200 and measured.products <= 17 * 16
    assert measured.trace[0] == pytest.approx(problem.curvatures.sum(), rel=1e-4)
    mean, error = measured.noise_trace
    assert abs(mean - problem.noise_variances.sum()) < 4 * error
    exact = read_model_curve(lambda at: (best_steps_to_loss(problem, at, goal) or best).steps).critical
    by_measured, by_assumed = noisy_quadratic_predictions(measured, TunedPoint("sgd", size, best.steps, best.steps))
    for prediction in (by_measured, by_assumed):
        assert exact / 1.5 < prediction.estimate.value < exact * 1.5
        assert prediction.trial_steps > best.steps


@pytest.mark.parametrize(
    ("model", "name", "small"), [("fc_512", "linear._LEAST_ROWS", 2), ("simple_cnn_narrow", "conv._BLOCK_BYTES", 2**16)]
)
def test_models_with_their_own_backward_rules_have_the_same_products(model, name, small, monkeypatch):
    workload = get_workload(WorkloadSpec(WorkloadName("digits", model, "sgd")))
    state = make_state(workload)
    products = []
    for value in (small, 2**40):  # the rule is used only with the small one
        monkeypatch.setattr(f"batchscale.workloads.models.layers.{name}", value)
        curvature = Curvature(workload, state, examples=128)
        products.append(curvature.product(np.random.default_rng(1).normal(size=curvature.num_parameters)))
    assert np.abs(products[1]).max() > 0
    np.testing.assert_allclose(*products, atol=1e-4 * np.abs(products[1]).max())
