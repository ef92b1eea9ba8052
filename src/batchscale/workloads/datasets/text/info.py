"""The description that data sets of text have in common. Imports no jax."""

from batchscale.workloads.datasets.declaration import DatasetInfo
from batchscale.workloads.datasets.text.options import SequenceOptions
from batchscale.workloads.tasks import Task


def sentence_info(name: str, count: int | None, num_outputs: int, options: SequenceOptions) -> DatasetInfo:
    """The description of a language modelling set of ``count`` training rows (None: known only with the files)."""
    return DatasetInfo(name, Task.LANGUAGE, count, num_outputs, (options.row_length,), "int32")
