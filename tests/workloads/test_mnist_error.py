"""A workload of the paper on real data, if it is there: FC-128-128-128 with SGD at batch size 32 on MNIST."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import pytest

from batchscale.errors import DataError
from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.workload_name import WorkloadName
from batchscale.workloads.registry import get_workload


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fc_128_128_128_reaches_three_percent_on_mnist():
    folder = os.environ.get("BATCHSCALE_DATA")
    try:
        spec = WorkloadSpec(WorkloadName.parse("mnist/fc_128_128_128/sgd"))
        workload = get_workload(spec, Path(folder) if folder else None)
    except DataError as error:
        pytest.skip(str(error).splitlines()[0])
    values, size = {"learning_rate": jnp.float32(0.1)}, 32
    train = {name: jnp.asarray(leaf) for name, leaf in workload.dataset.splits["train"].arrays.items()}
    update = workload.make_update(values)
    per_epoch = workload.dataset.num_train_examples // size

    def step(carry, chosen):
        params, memory, key = carry
        key, noise = jax.random.split(key)
        batch = workload.dataset.prepare({name: leaf[chosen] for name, leaf in train.items()})

        def mean_loss(params):
            outputs, _ = workload.model.apply(params, {}, batch["inputs"], train=True, key=noise)
            loss = workload.loss(outputs, batch, values)
            return loss.total / loss.weight

        change, memory = update.update(jax.grad(mean_loss)(params), memory, params)
        return (optax.apply_updates(params, change), memory, key), None

    @jax.jit
    def epoch(carry, key):
        order = jax.random.permutation(key, workload.dataset.num_train_examples)
        return jax.lax.scan(step, carry, order[: per_epoch * size].reshape(per_epoch, size))[0]

    @jax.jit
    def validate(params):
        batch = workload.dataset.prepare(dict(workload.dataset.splits["val"].arrays))
        outputs, _ = workload.model.apply(params, {}, batch["inputs"], train=False, key=jax.random.key(0))
        metric = next(metric for metric in workload.metrics if metric.name == "classification_error")
        return metric.value(metric.measure(outputs, batch, jnp.ones(len(outputs))))

    params, _ = workload.model.init(jax.random.key(0))
    carry = (params, update.init(params), jax.random.key(1))
    errors = []
    for index in range(25):
        carry = epoch(carry, jax.random.key(index))
        errors.append(float(validate(carry[0])))
        if errors[-1] < 0.03:
            break
    assert errors[-1] < 0.03
