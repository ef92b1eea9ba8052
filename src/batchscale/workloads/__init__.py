"""Workloads: data sets, models, optimizers, schedules, metrics, by name; and the registry that puts them together.

What others may use stands here and is loaded when first used: importing this package imports no jax, and of the names
only ``get_workload`` and ``examples_from`` do. Two modules are doors of their own: ``workload``, the interface that
training stands on, which imports jax, and ``audio``.
"""

from batchscale.doors import lazy_names

_PUBLIC = {
    "DatasetDeclaration": "datasets",
    "FileFetch": "datasets.files.fetch",
    "MORE_WORKLOADS": "listed",
    "MetricDeclaration": "metrics",
    "ModelDeclaration": "models",
    "NEUTRAL": "tunables",
    "OPTIMIZERS": "optimizers",
    "OptimizerDeclaration": "optimizers",
    "PAPER_WORKLOADS": "listed",
    "Parts": "catalogue",
    "Patience": "datasets.files.download",
    "PublishedCurve": "published",
    "SCHEDULES": "schedules",
    "ScheduleDeclaration": "schedules",
    "Task": "tasks",
    "UpdateRule": "noisy_quadratic",
    "cache_folder": "cache",
    "cache_problem": "cache",
    "cached": "cache",
    "check_precision": "models.declaration",
    "closed_form_steps_to_loss": "noisy_quadratic",
    "dataset_names": "datasets",
    "default_data_dir": "datasets.files.locations",
    "examples_from": "random_bits",
    "fetch_dataset": "datasets.files.fetch",
    "files_of": "datasets.presence",
    "find_dataset": "datasets.presence",
    "find_files": "datasets.files.locations",
    "find_parts": "catalogue",
    "find_published": "published",
    "get_workload": "registry",
    "list_datasets": "datasets.presence",
    "metric_directions": "metrics",
    "model_names": "models",
    "parse_problem": "noisy_quadratic",
    "register": "extension",
    "register_workload": "user.registration",
    "take_files": "datasets.files.take",
    "workload_facts": "catalogue",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = lazy_names(__name__, _PUBLIC)
