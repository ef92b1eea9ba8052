"""The work of a step: matrix products by hand, loops with their length, and the file that planning reads."""

import jax
import jax.numpy as jnp
import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.planning.work import read_work
from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.workload_name import WorkloadName
from batchscale.training.step_work import count_work, product_flops, workload_work
from batchscale.workloads.models.layers.conv import ordinary_products
from batchscale.workloads.registry import get_workload


def test_products_inside_loops_count_as_often_as_they_run():
    def program(matrix, vectors):
        return jax.lax.scan(lambda total, row: (total + matrix @ row, None), jnp.zeros(32), vectors)[0]

    shapes = jnp.zeros((32, 64)), jnp.zeros((50, 64))
    products = 2 * 32 * 64 * 50
    assert count_work(program, *shapes).flops == pytest.approx(products, rel=0.05)


@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize(
    ("model", "first", "others"),
    [
        ("fc_128_128", 64 * 128, 128 * 128 + 128 * 10),
        ("simple_cnn_narrow", 64 * 25 * 16, 16 * 25 * 16 * 32 + 4 * 32 * 512 + 512 * 10),
    ],
)
def test_products_whose_result_is_not_used_do_not_count(model, first, others, batch_size):
    workload = get_workload(WorkloadSpec(WorkloadName("digits", model, "sgd")), None)
    params, state = jax.eval_shape(workload.model.init, jax.random.key(0))
    images = jnp.zeros((batch_size, 8, 8, 1))

    def loss(params):
        outputs, _ = workload.model.apply(params, state, images, train=True, key=jax.random.key(0))
        return jnp.sum(outputs**2)

    with ordinary_products():
        assert product_flops(jax.grad(loss), params) == 2 * batch_size * (2 * first + 3 * others)


def test_a_dense_network_has_the_operations_of_its_products():
    workload = get_workload(WorkloadSpec(WorkloadName("digits", "fc_128_128_128", "sgd")), None)
    work, parameters, kind = workload_work(workload, 64)
    weights = (64 * 128, 128 * 128, 128 * 128, 128 * 10)
    products = 2 * 64 * (3 * sum(weights) - weights[0])  # no gradient of the inputs
    assert parameters == sum(weights) + 3 * 128 + 10
    assert products < work.flops < 1.2 * products
    assert kind == "other" and work.convolutions == 0
    assert work.memory_bytes > 4 * parameters


def test_convolutions_are_most_of_a_convolutional_network():
    def program(images, kernel):
        return jax.lax.conv(images, kernel, (1, 1), "SAME").sum()

    work = count_work(jax.grad(program, argnums=1), jnp.zeros((2, 3, 8, 8)), jnp.zeros((4, 3, 3, 3)))
    assert work.convolutions == 1


def test_calibrate_writes_the_work_that_plan_reads(tmp_path):
    path = tmp_path / "work.csv"
    words = ["calibrate", "digits/fc_128_128_128/sgd", "--batch-sizes", "8,64", "--work", str(path)]
    result = CliRunner().invoke(make_app(), words)
    assert result.exit_code == 0, result.output
    work = read_work(path, "digits/fc_128_128_128/sgd")
    assert work.flops_per_example == pytest.approx(2 * (3 * 42_240 - 8_192), rel=0.1)
    assert work.memory is not None and not work.memory.can_shard
