"""Data sets by name: their facts, where their files are, and how they become arrays.

Importing this package imports no jax; ``load_dataset`` does.
"""

from batchscale.workloads.datasets.facts import DatasetFacts, dataset_facts, dataset_names
from batchscale.workloads.datasets.load import load_dataset

__all__ = ["DatasetFacts", "dataset_facts", "dataset_names", "load_dataset"]
