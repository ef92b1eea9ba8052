"""``register``: a data set, model, optimizer, schedule or metric of another's, for the life of this process. No jax."""

from typing import Any

from batchscale.errors import SpecError, one_line
from batchscale.spec.workload_name import WorkloadName
from batchscale.workloads.datasets.declaration import DATASETS
from batchscale.workloads.declarations import Table
from batchscale.workloads.metrics.declaration import METRICS
from batchscale.workloads.models.declaration import MODELS
from batchscale.workloads.optimizers.declaration import OPTIMIZERS
from batchscale.workloads.schedules.declaration import SCHEDULES

TABLES: tuple[Table[Any], ...] = (DATASETS, MODELS, OPTIMIZERS, SCHEDULES, METRICS)


def register(*declarations: object) -> None:
    """Adds declarations to the tables of their kinds, as if modules of batchscale held them.

    Call it in the Python file that an experiment names as ``workload.file``: every process that trains runs that file.

    Raises:
        SpecError: Something is no declaration, or its name is taken.
    """
    for declaration in declarations:
        table = next((table for table in TABLES if isinstance(declaration, table.kind)), None)
        if table is None:
            kinds = ", ".join(table.kind.__name__ for table in TABLES)
            raise SpecError(f"What is registered is one of {kinds}. Found {one_line(repr(declaration))}.")
        table.register(declaration)


def has_registered_part(name: WorkloadName) -> bool:
    """Whether a part of this workload was registered, so that its parts make it."""
    pairs = ((DATASETS, name.dataset), (MODELS, name.model), (OPTIMIZERS, name.optimizer))
    return any(table.is_registered(part) for table, part in pairs)
