"""The multi-scale spectral loss of sound, under the name that DDSP's own training prints: ``total_loss``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.spec.experiment import Options
from batchscale.workloads.metrics.declaration import MetricDeclaration
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    from batchscale.workloads.metrics.declaration import Measure, Value


def _make(task: Task, dataset_options: Options) -> tuple[Measure, Value]:
    from batchscale.workloads.audio.spectral_loss import spectral_loss
    from batchscale.workloads.metrics.means import mean_of, ratio

    del task, dataset_options
    return mean_of(lambda outputs, batch: spectral_loss(outputs, batch["labels"])), ratio


TOTAL_LOSS = MetricDeclaration("total_loss", False, (Task.SOUND,), _make, trained_on=True)
