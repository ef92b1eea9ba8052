import math

import jax
import pytest

from batchscale.spec.workload_name import WorkloadName
from batchscale.workloads.datasets.declaration import dataset_info
from batchscale.workloads.models.declaration import Shape, find_model
from batchscale.workloads.published import MORE_WORKLOADS, PAPER_WORKLOADS

LISTED = {**PAPER_WORKLOADS, **MORE_WORKLOADS}
QUICK = ("mnist/fc_1024/", "mnist/simple_cnn_base/sgd", "cifar_10/resnet_8/sgd", "digits/fc_64/", "noisy_quadratic/")
MARKED = [pytest.param(name, marks=[] if name.startswith(QUICK) else pytest.mark.slow) for name in LISTED]


@pytest.mark.parametrize("name", MARKED)
def test_the_listed_number_of_parameters_is_the_models_own(name):
    workload = WorkloadName.parse(name)
    info = dataset_info(workload.dataset, {})
    built = find_model(workload.model, {}).for_data(Shape(info.input_shape, info.num_outputs))
    params, _ = jax.eval_shape(built.init, jax.random.key(0))
    assert LISTED[name] == sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
