import math

import jax
import pytest

from batchscale.workloads.datasets import dataset_facts
from batchscale.workloads.models.build import Shape, build_model
from batchscale.workloads.models.counts import NUM_PARAMETERS
from batchscale.workloads.models.facts import model_facts
from batchscale.workloads.noisy_quadratic import parse_problem

QUICK = {("mnist", "fc_1024"), ("mnist", "simple_cnn_base"), ("cifar_10", "resnet_8"), ("digits", "fc_64")}
MARKED = [pytest.param(*key, marks=[] if key in QUICK else pytest.mark.slow) for key in NUM_PARAMETERS]


@pytest.mark.parametrize(("dataset", "model"), MARKED)
def test_the_listed_number_of_parameters_is_the_models_own(dataset, model):
    facts = dataset_facts(dataset, {})
    if model == "quadratic":
        assert NUM_PARAMETERS[dataset, model] == parse_problem({}).dimension
        return
    built = build_model(model_facts(model, {}), Shape(facts.input_shape, facts.num_outputs))
    params, _ = jax.eval_shape(built.init, jax.random.key(0))
    assert NUM_PARAMETERS[dataset, model] == sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
