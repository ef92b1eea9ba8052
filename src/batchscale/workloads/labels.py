"""Labels of data sets, models, optimizers and metrics for titles and axes, as their declarations have them. No jax.

The one module of workloads that the code which reads records imports: labels stand in declarations, and nowhere else.
Records may come from other machines, so a name without a declaration here, or a broken plug-in, is no error: the name
is then its own label.
"""

from batchscale.errors import BatchscaleError
from batchscale.workloads.datasets.declaration import DATASETS
from batchscale.workloads.declarations import D, Table
from batchscale.workloads.metrics.declaration import METRICS
from batchscale.workloads.models.declaration import MODELS, find_declared_model
from batchscale.workloads.optimizers.declaration import OPTIMIZERS


def dataset_label(name: str) -> str:
    """Return the label of a data set, named without the group in front.

    >>> dataset_label("mnist_6875"), dataset_label("my_digits")
    ('MNIST 6,875', 'my_digits')
    """
    labels = {dataset.name.rpartition("/")[2]: dataset.label for dataset in _read(DATASETS).values()}
    return labels.get(name) or name


def model_label(name: str) -> str:
    """Return the label of a model.

    >>> model_label("fc_1024_1024")
    'FC-1024-1024'
    """
    model = find_declared_model(name) if _read(MODELS) else None
    return (model.label if model is not None else "") or name


def optimizer_label(name: str) -> str:
    """Return the label of an optimizer."""
    optimizer = _read(OPTIMIZERS).get(name)
    return (optimizer.label if optimizer is not None else "") or name


def metric_unit(name: str) -> str:
    """Return the unit of a metric, empty if it has none."""
    metric = _read(METRICS).get(name)
    return metric.unit if metric is not None else ""


def _read(table: Table[D]) -> dict[str, D]:
    """Return the declarations of a table, none if a plug-in is broken; ``batchscale workloads`` reports that."""
    try:
        return table.all()
    except BatchscaleError:
        return {}
