"""The facts that data sets of text have in common. Imports no jax."""

from batchscale.workloads.datasets.declaration import DatasetFacts
from batchscale.workloads.datasets.text.options import SequenceOptions
from batchscale.workloads.tasks import Task


def sentence_facts(name: str, count: int | None, num_outputs: int, options: SequenceOptions) -> DatasetFacts:
    """The facts of a language modelling set of ``count`` training rows (None: known only with the files)."""
    return DatasetFacts(name, Task.LANGUAGE, count, num_outputs, (options.row_length,), "int32")
