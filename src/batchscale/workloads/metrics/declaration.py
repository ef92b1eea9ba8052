"""What a metric declares: the tasks it is for, its direction, and how it is measured. Imports no jax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchscale.spec.experiment import Options
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    import jax

    from batchscale.workloads.workload import Batch

    Measure = Callable[[jax.Array, Batch, jax.Array], Any]
    Value = Callable[[Any], jax.Array]


@dataclass(frozen=True)
class MetricDeclaration:
    """A metric by name.

    ``make`` gives, for a task and the options of the data set, how to measure a batch and how to turn the sum over
    batches into the value (see ``workload.Metric``); it imports jax when called. ``trained_on`` says that the training
    loss is the same sum: such a metric stands first among the columns of the records.
    """

    name: str
    maximize: bool
    tasks: tuple[Task, ...]
    make: Callable[[Task, Options], tuple[Measure, Value]]
    trained_on: bool = False
