"""Every workload by name, and what must be known of it to check an experiment: without jax, data or a device.

``registry`` builds the same parts for real.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from batchscale.errors import SpecError, one_line, suggest_names
from batchscale.spec import SPLITS, Options, SearchSpace, WorkloadFacts, WorkloadName, WorkloadSpec
from batchscale.workloads.datasets.facts import DatasetFacts, dataset_facts
from batchscale.workloads.metric_facts import TASK_METRICS
from batchscale.workloads.models.facts import ModelFacts, model_facts
from batchscale.workloads.optimizer_facts import NEUTRAL, OptimizerFacts, optimizer_facts
from batchscale.workloads.schedule_facts import POINT_OPTIONS, ScheduleFacts, schedule_facts
from batchscale.workloads.tasks import Task

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
    """The facts of a workload's parts, checked to fit together."""

    name: WorkloadName
    dataset: DatasetFacts
    model: ModelFacts
    optimizer: OptimizerFacts
    schedule: ScheduleFacts

    @property
    def defaults(self) -> dict[str, float | None]:
        """Every metaparameter with its default."""
        neutral = {name: value for name, value in NEUTRAL.items() if self._has(name)}
        return {**self.optimizer.defaults, **dict.fromkeys(self.schedule.metaparameters), **neutral}

    def space(self, train_steps: int) -> SearchSpace:
        """The default search space for a step budget."""
        extra = self.model.ranges if self.dataset.task is Task.CLASSIFICATION else ()
        return SearchSpace((*self.optimizer.ranges, *self.schedule.ranges(train_steps), *extra))

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that the workload is measured on."""
        return SPLITS[:2] if self.dataset.task is Task.QUADRATIC else SPLITS

    def _has(self, name: str) -> bool:
        return name != "label_smoothing" or self.dataset.task is not Task.QUADRATIC


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
    _check_fit(dataset, model)
    _check_optimizer_options(spec.optimizer_options)
    schedule = schedule_facts(spec.schedule or model.schedule, spec.optimizer_options)
    return Parts(name, dataset, model, optimizer_facts(name.optimizer), schedule)


def workload_facts(spec: WorkloadSpec) -> WorkloadFacts:
    """What must be known of a workload to check an experiment without touching its data or a device."""
    parts = find_parts(spec)
    metrics: Mapping[str, bool] = TASK_METRICS[parts.dataset.task]
    return WorkloadFacts(
        name=spec.name,
        metrics=metrics,
        num_train_examples=parts.dataset.num_train_examples,
        defaults=parts.defaults,
        default_space=parts.space,
        splits=parts.splits,
    )


def _check_fit(dataset: DatasetFacts, model: ModelFacts) -> None:
    if dataset.task not in model.tasks:
        raise SpecError(
            f"Data set {dataset.name} poses the task '{dataset.task}'; model {model.name} is for "
            f"{' and '.join(repr(str(task)) for task in model.tasks)}. Choose another model."
        )
    shape = dataset.input_shape
    if model.min_side and (len(shape) != 3 or min(shape[:2]) < model.min_side):
        raise SpecError(
            f"Model {model.name} needs images (height, width, channels) of at least "
            f"{model.min_side}×{model.min_side}. Data set {dataset.name} has examples of shape {shape}."
        )


def _check_optimizer_options(options: Options) -> None:
    for key in options:
        if key not in POINT_OPTIONS:
            raise SpecError(f"optimizer has no option '{one_line(key)}'; {suggest_names(key, POINT_OPTIONS)}")
