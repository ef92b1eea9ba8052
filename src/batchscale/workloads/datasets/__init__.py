"""Data sets by name: their facts, where their files are, and how they become arrays.

Importing this package imports no jax; ``load_dataset`` does.
"""

from batchscale.workloads.datasets.declaration import DatasetDeclaration, DatasetFacts
from batchscale.workloads.datasets.table import DATASETS, dataset_facts, dataset_names, load_dataset

__all__ = ["DATASETS", "DatasetDeclaration", "DatasetFacts", "dataset_facts", "dataset_names", "load_dataset"]
