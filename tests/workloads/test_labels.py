"""Labels come from declarations, without jax, and are never an error."""

import subprocess
import sys

import pytest

from batchscale.errors import SpecError
from batchscale.figures.names import metric_label, workload_label
from batchscale.spec.workload_name import WorkloadName
from batchscale.workloads import labels
from batchscale.workloads.datasets.declaration import DATASETS


@pytest.mark.parametrize(
    ("workload", "label"),
    [
        ("mnist/simple_cnn_base/sgd", "Simple CNN on MNIST (SGD)"),
        ("imagenet_subsets/imagenet_half_images/resnet_50/adam", "ResNet-50 on Half Images ImageNet (Adam)"),
        ("solution_quality/fashion_mnist/fc_64_64/lion", "FC-64-64 on Fashion MNIST (solution quality, lion)"),
        ("mnist_subsets/mnist_6875/vgg_11/momentum", "VGG-11 on MNIST 6,875 (Momentum)"),
        ("somebody/else/has_this/one", "has_this on else (somebody, one)"),
    ],
)
def test_workloads_are_named_by_their_declarations(workload, label):
    assert workload_label(WorkloadName.parse(workload)) == label


def test_drawing_and_reporting_import_no_jax():
    code = (
        "import sys, batchscale.report.page, batchscale.figures.paper\n"
        "from batchscale.figures.names import model_label\n"
        "assert model_label('resnet_8') == 'ResNet-8'\n"
        "sys.exit(any(name in sys.modules for name in ('jax', 'flax', 'optax')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_broken_plug_in_leaves_names_as_they_are(monkeypatch):
    def fail():
        raise SpecError("a plug-in cannot be imported")

    monkeypatch.setattr(DATASETS, "all", fail)
    assert labels.dataset_label("mnist") == "mnist"
    assert metric_label("val/cross_entropy_error") == "validation cross entropy error (nats)"
