"""Data sets by name: their descriptions, where their files are, and how they become arrays.

Importing this package imports no jax; ``load_dataset`` does.
"""

from batchscale.workloads.datasets.declaration import DatasetDeclaration, DatasetInfo
from batchscale.workloads.datasets.table import DATASETS, dataset_info, dataset_names, load_dataset

__all__ = ["DATASETS", "DatasetDeclaration", "DatasetInfo", "dataset_info", "dataset_names", "load_dataset"]
