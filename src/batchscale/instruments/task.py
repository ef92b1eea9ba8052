"""The task of sound: samples that sound like a recording, trained with the multi-scale spectral loss.

The metric has the name that DDSP's own training prints: ``total_loss``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.spec.experiment import Options
from batchscale.workloads.metrics.declaration import MetricDeclaration
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    from batchscale.workloads.metrics.declaration import Measure, Value
    from batchscale.workloads.workload import Loss


def _make_loss(dataset_options: Options) -> Loss:
    from batchscale.instruments.synthesis.spectral_loss import sound_loss

    del dataset_options
    return sound_loss


def _make_metric(task: Task, dataset_options: Options) -> tuple[Measure, Value]:
    from batchscale.instruments.synthesis.spectral_loss import spectral_loss
    from batchscale.workloads.metrics.sums import mean_of, ratio

    del task, dataset_options
    return mean_of(lambda outputs, batch: spectral_loss(outputs, batch["labels"])), ratio


SOUND = Task("sound", _make_loss, has_classes=False, splits=("train", "val"))
TOTAL_LOSS = MetricDeclaration("total_loss", False, (SOUND,), _make_metric, trained_on=True)
