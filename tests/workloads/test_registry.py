"""Every workload of the paper by name, built tiny and trained for one step; and combinations of any parts."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from batchscale.errors import SpecError, UnknownNameError
from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.workload_name import WorkloadName
from batchscale.workloads.optimizers.declaration import OPTIMIZERS
from batchscale.workloads.published import PAPER_WORKLOADS
from batchscale.workloads.registry import find_parts, get_workload, workload_info

sys.path.insert(0, str(Path(__file__).parent))
from generated import cheap_jit, complete_metaparameters, generate_dataset

PAPER = list(PAPER_WORKLOADS)


def make(name, dataset_name=None, **model_options):
    parsed = WorkloadName.parse(name)
    spec = WorkloadSpec(parsed, model_options={"tiny": True, **model_options})
    return get_workload(spec, dataset=generate_dataset(dataset_name or parsed.dataset))


def values_of(workload, **given):
    space = workload.space(100)
    middle = {c.name: c.feasible_points[0] if c.feasible_points else (c.min_value + c.max_value) / 2 for c in space}
    found = complete_metaparameters(workload.defaults, {**middle, "learning_rate": 0.001, **given})
    return {name: jnp.float32(value) for name, value in found.items()}


PROGRAMS = {}


def program_of(workload, options):
    """The compiled start and gradient; at tiny sizes many names share them: MNIST and its subsets, base and wide."""
    info = find_parts(WorkloadSpec(workload.name, model_options=options))
    key = (info.model.build, str(info.model.options), info.dataset.task, workload.dataset.input_shape)
    if key not in PROGRAMS:

        def gradient(params, state, key, values, batch):
            def mean_loss(params):
                outputs, changed = workload.model.apply(params, state, batch["inputs"], train=True, key=key)
                loss = workload.loss(outputs, batch, values)
                return loss.total / loss.weight, (outputs, changed)

            (loss, (outputs, changed)), found = jax.value_and_grad(mean_loss, has_aux=True)(params)
            weights = jnp.ones(len(batch["inputs"]))
            measured = {m.name: m.value(m.measure(outputs, batch, weights)) for m in workload.metrics}
            largest = jnp.stack([jnp.abs(leaf).max() for leaf in jax.tree.leaves(found)])
            return found, changed, loss, largest, measured

        PROGRAMS[key] = cheap_jit(workload.model.init), cheap_jit(gradient)
    return PROGRAMS[key]


def two_steps(workload, values, options):
    """The losses of two steps on the same batch with the same dropout, the first gradient, and the first metrics."""
    batch = workload.dataset.prepare(dict(workload.dataset.splits["train"].arrays))
    init, gradient = program_of(workload, options)
    key = jax.random.key(0)
    params, state = init(key)
    smoothing = {"label_smoothing": jnp.float32(0)}
    found, changed, before, largest, measured = gradient(params, state, key, smoothing, batch)

    @cheap_jit
    def step(params, found, values):
        update = workload.make_update(values)
        change, _ = update.update(found, update.init(params), params)
        return optax.apply_updates(params, change)

    after = gradient(step(params, found, values), changed, key, smoothing, batch)[2]
    return before, after, largest, measured


# ResNet-50 takes the longest to compile, and once is enough for every run; multi-label loss has tests of its own.
AGAIN = "open_images_v4/resnet_50/nesterov_momentum"


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n == AGAIN else n for n in PAPER])
def test_a_workload_of_the_paper_takes_a_step_that_lowers_its_loss(name):
    workload = make(name)
    before, after, largest, measured = two_steps(workload, values_of(workload), {"tiny": True})
    assert after < before  # a small step along the gradient, seen by the same batch, must help
    assert np.all(largest > 0)  # no parameter is left out
    assert set(measured) == set(workload_info(WorkloadSpec(workload.name)).metrics)
    assert all(np.isfinite(value) for value in measured.values())


def test_there_are_35_names_in_the_order_of_the_published_table():
    assert len(PAPER) == len(set(PAPER)) == 35
    assert sorted(PAPER) == PAPER


@pytest.mark.parametrize("optimizer", OPTIMIZERS.all())
def test_any_optimizer_trains_any_model(optimizer):
    workload = make(f"digits/mlp/{optimizer}")
    before, after, _, _ = two_steps(workload, values_of(workload, learning_rate=1e-3), {"tiny": True})
    assert after < before


def test_the_default_schedule_is_the_papers():
    decay = {"end_learning_rate_factor", "learning_rate_decay_steps"}
    for name in map(WorkloadName.parse, PAPER_WORKLOADS):
        searched = set(workload_info(WorkloadSpec(name)).default_space(1000).names)
        assert (decay <= searched) == name.model.startswith(("resnet", "vgg"))
        assert ("momentum" in searched) == (name.optimizer != "sgd")


def test_the_default_space_of_resnet_50_on_imagenet_is_the_published_one():
    published = {
        "end_learning_rate_factor": {"max_value": 0.1, "min_value": 0.0001, "scale": "LOG_SCALE", "type": "DOUBLE"},
        "label_smoothing": {"feasible_points": [0.0, 0.01, 0.1], "type": "DISCRETE"},
        "learning_rate": {"max_value": 10.0, "min_value": 0.0001, "scale": "LOG_SCALE", "type": "DOUBLE"},
        "learning_rate_decay_steps": {"max_value": 600000, "min_value": 300000, "scale": "", "type": "INTEGER"},
        "momentum": {"max_value": 0.9999, "min_value": 0.9, "scale": "REVERSE_LOG_SCALE", "type": "DOUBLE"},
    }
    info = workload_info(WorkloadSpec(WorkloadName.parse("imagenet/resnet_50/nesterov_momentum")))
    assert info.default_space(600_000).to_json() == published


def test_the_schedule_can_be_chosen():
    spec = WorkloadSpec(WorkloadName.parse("digits/mlp/sgd"), schedule="cosine")
    assert "learning_rate_decay_steps" in workload_info(spec).defaults


def test_info_and_workload_agree():
    for name in ("digits/fc_32/adam", "cifar_10/resnet_8/sgd"):
        spec = WorkloadSpec(WorkloadName.parse(name))
        info, workload = workload_info(spec), get_workload(spec, dataset=generate_dataset(spec.name.dataset))
        assert info.metrics == {metric.name: metric.maximize for metric in workload.metrics}
        assert info.defaults == workload.defaults
        assert info.default_space(50) == workload.space(50)


@pytest.mark.parametrize(
    ("name", "options", "error", "words"),
    [
        ("digits/fc_0/sgd", {}, UnknownNameError, "no model"),
        ("digits/resnet_9/sgd", {}, UnknownNameError, "resnet_8"),
        ("digits/mlp/sdg", {}, UnknownNameError, "'sgd'"),
        ("digit/mlp/sgd", {}, UnknownNameError, "digits"),
        ("digits/lstm/sgd", {}, SpecError, "'language'"),
        ("digits/vgg_11/sgd", {}, SpecError, "32×32"),
        ("digits/mlp/sgd", {"width": 3}, UnknownNameError, "widths"),
        ("digits/mlp/sgd", {"widths": (3, 0)}, SpecError, "from 1 to"),
        ("digits/mlp/sgd", {"dropout": 1.0}, SpecError, re.escape("[0, 1)")),
        ("digits/mlp/sgd", {"tiny": 1}, SpecError, "true or false"),
        ("digits/mlp/sgd", {"precision": "float16"}, SpecError, "bfloat16"),
        ("digits/resnet_8/sgd", {"width": True}, SpecError, "whole number"),
        ("lm1b/gpt_1m/adamw", {"width": 12}, SpecError, "twice its 4 heads"),
        ("lm1b/gpt_1m/adamw", {"swiglu": 1}, SpecError, "true or false"),
        ("digits/gpt_1m/adamw", {}, SpecError, "'language' and 'text'"),
    ],
)
def test_what_does_not_exist_or_fit_is_refused_with_what_does(name, options, error, words):
    with pytest.raises(error, match=words):
        workload_info(WorkloadSpec(WorkloadName.parse(name), model_options=options))


def test_heads_must_divide_the_width_and_optimizer_options_must_exist():
    name = WorkloadName.parse("lm1b/transformer_base/sgd")
    with pytest.raises(SpecError, match="8 heads"):
        workload_info(WorkloadSpec(name, model_options={"width": 12}))
    with pytest.raises(SpecError, match="schedule_steps"):
        workload_info(WorkloadSpec(WorkloadName.parse("digits/mlp/sgd"), optimizer_options={"schedule_step": 1}))


def test_the_info_of_a_workload_need_no_jax():
    code = (
        "import sys; from batchscale.spec import *; from batchscale.workloads.registry import workload_info; "
        "from batchscale.workloads.published import PAPER_WORKLOADS; "
        "[workload_info(WorkloadSpec(WorkloadName.parse(name))) for name in PAPER_WORKLOADS]; "
        "sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
