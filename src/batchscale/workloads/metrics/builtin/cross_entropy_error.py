"""Cross entropy in nats: the total over all examples (or tokens) divided by their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.spec.experiment import Options
from batchscale.workloads.metrics.declaration import MetricDeclaration
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    from batchscale.workloads.metrics.declaration import Measure, Value


def _make(task: Task, dataset_options: Options) -> tuple[Measure, Value]:
    from batchscale.workloads.losses import sigmoid_cross_entropy, softmax_cross_entropy
    from batchscale.workloads.metrics.sums import mean_of, ratio

    del dataset_options
    entropy = sigmoid_cross_entropy if task is Task.MULTILABEL else softmax_cross_entropy
    per_token = task in (Task.LANGUAGE, Task.TEXT)
    return mean_of(lambda outputs, batch: entropy(outputs, batch["labels"]), per_token=per_token), ratio


CROSS_ENTROPY_ERROR = MetricDeclaration(
    "cross_entropy_error",
    maximize=False,
    tasks=(Task.CLASSIFICATION, Task.MULTILABEL, Task.LANGUAGE, Task.TEXT),
    make=_make,
    trained_on=True,
    unit="nats",
)
