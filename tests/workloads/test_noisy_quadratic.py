"""The closed form against the formula of SGD, against simulation, and against the workload as it trains."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from batchscale.errors import SpecError, UnknownNameError
from batchscale.noisy_quadratic import (
    NoisyQuadratic,
    UpdateRule,
    closed_form_loss,
    closed_form_steps_to_loss,
    parse_problem,
)
from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.workload_name import WorkloadName
from batchscale.workloads.registry import get_workload, workload_info


def test_sgd_follows_its_geometric_closed_form():
    problem = NoisyQuadratic(dimension=5, noise=0.3, initial_variance=2.0)
    rate, size, steps = 0.7, 4, 30
    h = 1 / np.arange(1, 6)
    shrink = (1 - rate * h) ** 2
    rest = rate**2 * (0.3 * h / size) / (1 - shrink)  # the fixed point of s' = (1-αh)² s + α² c/B
    t = np.arange(steps + 1)[:, None]
    expected = 0.5 * np.sum(h * (rest + (2.0 - rest) * shrink**t), axis=1)
    found = closed_form_loss(problem, UpdateRule("sgd", rate), size, steps)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov_momentum"])
@pytest.mark.parametrize("like_curvature", [True, False])
def test_the_expected_loss_is_the_mean_over_simulated_runs(optimizer, like_curvature):
    problem = NoisyQuadratic(dimension=3, noise=2.0, noise_like_curvature=like_curvature, curvature_power=1.5)
    rates, gamma, size, runs, steps = [0.5, 0.4, 0.3, 0.2], 0.6, 8, 200_000, 12
    random = np.random.default_rng(1)
    h, deviation = problem.curvatures, np.sqrt(problem.noise_variances / size)
    theta = random.choice([-1.0, 1.0], size=(runs, 3))
    velocity = np.zeros_like(theta)
    losses = [0.5 * np.sum(h * theta**2, axis=1)]
    for step in range(steps):
        rate = rates[min(step, 3)]
        gradient = h * theta + deviation * random.normal(size=theta.shape)
        velocity = (0.0 if optimizer == "sgd" else gamma) * velocity + gradient
        change = velocity if optimizer != "nesterov_momentum" else gradient + gamma * velocity
        theta = theta - rate * change
        losses.append(0.5 * np.sum(h * theta**2, axis=1))
    found = closed_form_loss(problem, UpdateRule(optimizer, rates, gamma), size, steps)
    for loss, expected in zip(losses, found, strict=True):
        error = loss.std() / np.sqrt(runs)
        assert abs(loss.mean() - expected) <= 4.5 * error + 1e-12  # 13 × 6 comparisons, each 1 in 150,000


def test_steps_to_loss_is_the_first_step_below_the_goal():
    problem, rule = NoisyQuadratic(dimension=50), UpdateRule("momentum", 0.05, 0.9)
    losses = closed_form_loss(problem, rule, 16, 200)
    goal = float(losses[77])
    found = closed_form_steps_to_loss(problem, rule, 16, goal, 200)
    assert found == int(np.argmax(losses < goal)) == 78  # strictly below: step 77 itself does not count
    assert closed_form_steps_to_loss(problem, rule, 16, 0.0, 200) is None


def test_a_diverging_rule_never_reaches_a_goal():
    assert closed_form_steps_to_loss(NoisyQuadratic(), UpdateRule("sgd", 5.0), 1, 1e-3, 10**6) is None


def test_larger_batches_need_fewer_steps_down_to_a_floor():
    problem, rule = NoisyQuadratic(dimension=20, noise=4.0), UpdateRule("sgd", 0.2)
    noisy, large, huge = (closed_form_steps_to_loss(problem, rule, size, 0.12, 5000) for size in (8, 128, 10**9))
    assert noisy > large >= huge > 0
    assert closed_form_steps_to_loss(problem, rule, 4, 0.12, 5000) is None  # the noise floor is above the goal


def make(optimizer="sgd", **options):
    return get_workload(WorkloadSpec(WorkloadName("noisy_quadratic", "quadratic", optimizer), options))


def gradient_of(workload, theta, batch):
    def mean(params):
        outputs, _ = workload.model.apply(params, {}, batch["inputs"], train=True, key=jax.random.key(0))
        loss = workload.loss(outputs, batch, {})
        return loss.total / loss.weight

    return jax.grad(mean)({"theta": theta})["theta"]


def test_the_gradient_is_curvature_times_parameters_plus_the_noise():
    workload = make(dimension=4)
    batch = workload.dataset.splits["train"].sample(jax.random.key(3), 16)
    theta = jnp.array([1.0, -2.0, 0.5, 4.0])
    expected = theta / jnp.arange(1, 5) + batch["inputs"][0]
    np.testing.assert_allclose(gradient_of(workload, theta, batch), expected, rtol=1e-5)


@pytest.mark.parametrize("size", [1, 64])
def test_the_noise_has_variance_c_over_batch_size(size):
    sample = make(dimension=2, noise=3.0).dataset.splits["train"].sample
    noise = jax.vmap(lambda key: sample(key, size)["inputs"][0])(jax.random.split(jax.random.key(0), 100_000))
    np.testing.assert_allclose(np.var(noise, axis=0), 3.0 / np.array([1, 2]) / size, rtol=0.03)  # 6.7 deviations
    np.testing.assert_allclose(np.mean(noise, axis=0), 0, atol=5 * np.sqrt(3.0 / size / 100_000))


def test_training_follows_the_closed_form():
    problem = NoisyQuadratic(dimension=8, noise=1.0)
    rate, gamma, size, steps, runs = 0.1, 0.8, 4, 40, 4000
    workload = make("nesterov_momentum", dimension=8)
    sample, (metric,) = workload.dataset.splits["train"].sample, workload.metrics
    values = {"learning_rate": jnp.float32(rate), "momentum": jnp.float32(gamma)}

    @jax.jit
    @jax.vmap
    def run(key):
        params, _ = workload.model.init(key)
        update = workload.make_update(values)

        def step(carry, index):
            params, state = carry
            batch = sample(jax.random.fold_in(key, index), size)
            gradient = {"theta": gradient_of(workload, params["theta"], batch)}
            change, state = update.update(gradient, state, params)
            params = optax.apply_updates(params, change)
            outputs = workload.model.apply(params, {}, batch["inputs"], train=False, key=key)[0]
            return (params, state), metric.value(metric.measure(outputs, batch, jnp.ones(1)))

        return jax.lax.scan(step, (params, update.init(params)), jnp.arange(steps))[1]

    losses = np.asarray(run(jax.random.split(jax.random.key(1), runs)))
    expected = closed_form_loss(problem, UpdateRule("nesterov_momentum", rate, gamma), size, steps)[1:]
    errors = losses.std(axis=0) / np.sqrt(runs)
    assert np.all(np.abs(losses.mean(axis=0) - expected) < 4.5 * errors)


def test_training_starts_at_the_initial_variance_exactly():
    params, state = make(dimension=6, initial_variance=4.0).model.init(jax.random.key(0))
    np.testing.assert_array_equal(np.abs(params["theta"]), np.full(6, 2.0))
    assert state == {}


def test_its_info_have_no_training_set_and_one_metric():
    info = workload_info(WorkloadSpec(WorkloadName("noisy_quadratic", "quadratic", "sgd")))
    assert info.num_train_examples is None
    assert info.metrics == {"loss": False}
    assert info.splits == ("train", "val")
    assert "label_smoothing" not in info.defaults


@pytest.mark.parametrize("options", [{"dimension": 0}, {"dimension": 2.5}, {"noise": -1}, {"noise_like_curvature": 1}])
def test_impossible_options_are_refused(options):
    with pytest.raises(SpecError, match=next(iter(options))):
        parse_problem(options)


def test_unknown_options_and_rules_are_refused():
    with pytest.raises(UnknownNameError, match="dimension"):
        parse_problem({"dimensions": 3})
    with pytest.raises(SpecError, match="sgd"):
        UpdateRule("adam", 0.1)


def test_the_oracle_and_the_catalogue_need_no_jax():
    modules = "batchscale.workloads.registry, batchscale.noisy_quadratic"
    code = f"import sys, {modules}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
