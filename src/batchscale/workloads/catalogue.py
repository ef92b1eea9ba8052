"""Every workload by name, and what must be known of it to check an experiment: without jax, data or a device.

``registry`` builds the same parts for real.
"""

from dataclasses import dataclass
from pathlib import Path

from batchscale.spec import SPLITS, WorkloadFacts, WorkloadName, WorkloadSpec
from batchscale.workloads.datasets import DatasetFacts, dataset_facts
from batchscale.workloads.metric_facts import TASK_METRICS
from batchscale.workloads.models.facts import ModelFacts, check_fit, model_facts
from batchscale.workloads.tasks import Task
from batchscale.workloads.tunables import Tuning, find_tuning
from batchscale.workloads.user.registration import OwnWorkload, find_own

_PAPER = """
cifar_10/resnet_8/nesterov_momentum
cifar_10/resnet_8/sgd
common_crawl/transformer_base/nesterov_momentum
fashion_mnist/simple_cnn_base/nesterov_momentum
imagenet/resnet_50/nesterov_momentum
imagenet/vgg_11/nesterov_momentum
imagenet_subsets/imagenet_half_classes/resnet_50/nesterov_momentum
imagenet_subsets/imagenet_half_images/resnet_50/nesterov_momentum
lm1b/lstm/nesterov_momentum
lm1b/transformer_base/nesterov_momentum
lm1b/transformer_narrow_and_shallow/nesterov_momentum
lm1b/transformer_shallow/momentum
lm1b/transformer_shallow/nesterov_momentum
lm1b/transformer_shallow/sgd
lm1b/transformer_wide/nesterov_momentum
mnist/fc_1024/sgd
mnist/fc_1024_1024/sgd
mnist/fc_1024_1024_1024/sgd
mnist/fc_128_128_128/sgd
mnist/fc_2048_2048_2048/sgd
mnist/fc_256_256_256/sgd
mnist/fc_512_512_512/sgd
mnist/fc_64_64_64/sgd
mnist/simple_cnn_base/momentum
mnist/simple_cnn_base/nesterov_momentum
mnist/simple_cnn_base/sgd
mnist/simple_cnn_narrow/sgd
mnist/simple_cnn_wide/sgd
mnist_subsets/mnist_13750/simple_cnn_base/nesterov_momentum
mnist_subsets/mnist_27500/simple_cnn_base/nesterov_momentum
mnist_subsets/mnist_55000/simple_cnn_base/nesterov_momentum
mnist_subsets/mnist_6875/simple_cnn_base/nesterov_momentum
open_images_v4/resnet_50/nesterov_momentum
solution_quality/fashion_mnist/simple_cnn_base/nesterov_momentum
solution_quality/mnist/simple_cnn_base/nesterov_momentum
"""


@dataclass(frozen=True)
class Parts:
    """The facts of a built-in workload's parts, checked to fit together."""

    dataset: DatasetFacts
    model: ModelFacts
    tuning: Tuning


def paper_workloads() -> tuple[WorkloadName, ...]:
    """The 35 workloads of the paper, under their published names."""
    return tuple(WorkloadName.parse(line) for line in _PAPER.split())


def find_parts(spec: WorkloadSpec) -> Parts:
    """The facts of each part of a built-in workload.

    Raises:
        UnknownNameError: a part or an option that does not exist, with the nearest that do.
        SpecError: parts that do not fit together, or an option with an impossible value.
    """
    name = spec.name
    dataset = dataset_facts(name.dataset, spec.dataset_options)
    model = model_facts(name.model, spec.model_options)
    check_fit(model, name.dataset, dataset.task, dataset.input_shape)
    extra = model.ranges if dataset.task is Task.CLASSIFICATION else ()
    return Parts(dataset, model, find_tuning(spec, model.schedule, dataset.task is not Task.QUADRATIC, extra))


def workload_facts(spec: WorkloadSpec, data_dir: Path | None = None) -> WorkloadFacts:
    """What must be known of a workload to check an experiment without touching its data or a device.

    A workload of the user's own is registered before, or by the Python file that the experiment names, which is run;
    ``data_dir`` may have the built-in data set that it is on.
    """
    own = find_own(spec.name, spec.file)
    if own is not None:
        return _own_facts(own, spec, data_dir)
    parts = find_parts(spec)
    return WorkloadFacts(
        name=spec.name,
        metrics=TASK_METRICS[parts.dataset.task],
        num_train_examples=parts.dataset.num_train_examples,
        defaults=parts.tuning.defaults,
        default_space=parts.tuning.space,
        splits=SPLITS[:2] if parts.dataset.task is Task.QUADRATIC else SPLITS,
    )


def _own_facts(own: OwnWorkload, spec: WorkloadSpec, data_dir: Path | None) -> WorkloadFacts:
    from batchscale.workloads.user.build import build_own  # jax: only the user's own code can say what it needs

    workload = build_own(own, spec, data_dir)
    return WorkloadFacts(
        name=spec.name,
        metrics={metric.name: metric.maximize for metric in workload.metrics},
        num_train_examples=workload.dataset.num_train_examples,
        defaults=workload.defaults,
        default_space=workload.space,
        splits=tuple(split for split in SPLITS if split in workload.dataset.splits),
    )
