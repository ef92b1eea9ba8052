"""What the table of data sets is made of: an entry per name, and the facts that it gives. Imports no jax."""

from collections.abc import Callable
from dataclasses import dataclass

from batchscale.spec import Options
from batchscale.workloads.tasks import Task


@dataclass(frozen=True)
class DatasetFacts:
    """A data set as the paper or its publisher describes it; of files that the user names, as they are.

    ``num_train_examples`` is None where it is known only with the files at hand (or where data is sampled without
    end), and so is ``num_outputs``. ``input_shape`` and ``input_dtype`` describe one prepared training example.
    """

    name: str
    task: Task
    num_train_examples: int | None
    num_outputs: int | None
    input_shape: tuple[int, ...]
    input_dtype: str = "float32"


@dataclass(frozen=True)
class DatasetEntry:
    """Where a name leads: the module that loads it, the folder that holds its files (None: no files needed), facts."""

    module: str
    folder: str | None
    facts: Callable[[str, Options], DatasetFacts]
