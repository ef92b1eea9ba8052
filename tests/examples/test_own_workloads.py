"""The examples of own workloads: their experiments are valid and they learn."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from batchscale.spec.file import read_experiment
from batchscale.spec.plan import make_plan
from batchscale.workloads.registry import get_workload, workload_info
from batchscale.workloads.tunables import NEUTRAL
from batchscale.workloads.workload import IndexedSplit

EXAMPLES = Path(__file__).parents[2] / "examples"


def whole(split):
    """All examples of a split."""
    if isinstance(split, IndexedSplit):
        return split.read(np.arange(split.num_examples), None)
    return split.arrays


def train(workload, given, steps=600, size=64):
    """The metrics on the validation split after some steps."""
    defaults = {k: v for k, v in workload.defaults.items() if v is not None and k not in NEUTRAL}
    values = {k: jnp.float32(v) for k, v in {**defaults, **given}.items()}
    arrays = {name: jnp.asarray(leaf) for name, leaf in whole(workload.dataset.splits["train"]).items()}
    update = workload.make_update(values)

    def step(carry, key):
        params, state, memory = carry
        chosen = jax.random.randint(key, (size,), 0, len(arrays["inputs"]))
        batch = workload.dataset.prepare({name: leaf[chosen] for name, leaf in arrays.items()})

        def mean_loss(params):
            outputs, changed = workload.model.apply(params, state, batch["inputs"], train=True, key=key)
            loss = workload.loss(outputs, batch, values)
            return loss.total / loss.weight, changed

        gradient, state = jax.grad(mean_loss, has_aux=True)(params)
        change, memory = update.update(gradient, memory, params)
        return (optax.apply_updates(params, change), state, memory), None

    @jax.jit
    def run(key):
        params, state = workload.model.init(key)
        start = (params, state, update.init(params))
        (params, state, _), _ = jax.lax.scan(step, start, jax.random.split(key, steps))
        batch = workload.dataset.prepare(dict(whole(workload.dataset.splits["val"])))
        outputs, _ = workload.model.apply(params, state, batch["inputs"], train=False, key=key)
        weights = jnp.ones(len(outputs))
        return {metric.name: metric.value(metric.measure(outputs, batch, weights)) for metric in workload.metrics}

    return run(jax.random.key(0))


@pytest.mark.parametrize(
    ("name", "metric", "given", "reached"),
    [
        ("two_moons", "classification_error", {"learning_rate": 0.1, "momentum": 0.9}, 0.03),
        ("regression", "squared_error", {"learning_rate": 0.01}, 0.05),
    ],
)
def test_an_example_is_valid_and_reaches_its_goal(name, metric, given, reached):
    experiment = read_experiment(EXAMPLES / f"{name}.toml")
    facts = workload_info(experiment.workload)
    plan = make_plan(experiment, facts)
    assert experiment.goal.value == reached
    assert facts.splits == ("train", "val")
    assert facts.num_train_examples == 2000
    assert [study.batch_size for study in plan.studies][-1] >= 64
    measured = train(get_workload(experiment.workload), given)
    assert set(measured) == set(facts.metrics)
    assert float(measured[metric]) < reached
    assert np.all(np.isfinite(list(measured.values())))
