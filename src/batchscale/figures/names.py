"""How workloads, metrics and metaparameters are called in titles and on axes.

Known names get the words of the paper; any other name stands as it is in the records.
"""

from collections.abc import Iterable, Mapping

from batchscale.errors import one_line
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName
from batchscale.workloads import labels

_SPLITS: Mapping[str, str] = {"train": "training", "val": "validation", "test": "test"}
_METAPARAMETERS: Mapping[str, str] = {
    "learning_rate": "learning rate η",
    "momentum": "momentum γ",
    "effective_learning_rate": "effective learning rate η/(1 − γ)",
    "end_learning_rate_factor": "decay factor α",
    "learning_rate_decay_factor": "decay factor α",
    "learning_rate_decay_steps": "decay steps T",
    "learning_rate_decay_steps_factor": "decay steps T / train steps",
    "label_smoothing": "label smoothing",
}
BASELINES: Mapping[str, str] = {
    "robust": "dashed: perfect scaling through the point with the fewest examples",
    "first": "dashed: perfect scaling through the first point",
}


def dataset_label(dataset: str) -> str:
    """A data set in words; its group folder is named unless the data set's own words tell it.

    >>> dataset_label("solution_quality/mnist"), dataset_label("mnist_subsets/mnist_6875")
    ('MNIST (solution quality)', 'MNIST 6,875')
    """
    group, _, last = dataset.rpartition("/")
    words = labels.dataset_label(last)
    if group and not group.endswith("_subsets"):
        words = f"{words} ({group.replace('_', ' ')})"
    return one_line(words, 60)


def model_label(model: str) -> str:
    """A model in words; fully connected ones as the paper writes them.

    >>> model_label("fc_1024_1024")
    'FC-1024-1024'
    """
    return one_line(labels.model_label(model), 60)


def optimizer_label(optimizer: str) -> str:
    """An optimizer in words."""
    return one_line(labels.optimizer_label(optimizer), 60)


def workload_label(workload: WorkloadName) -> str:
    """A workload in words.

    >>> workload_label(WorkloadName("mnist", "simple_cnn_base", "sgd"))
    'Simple CNN on MNIST (SGD)'
    """
    dataset = dataset_label(workload.dataset)
    head, optimizer = f"{model_label(workload.model)} on {dataset}", optimizer_label(workload.optimizer)
    return f"{head[:-1]}, {optimizer})" if dataset.endswith(")") else f"{head} ({optimizer})"


def study_titles(workloads: Iterable[WorkloadName]) -> dict[WorkloadName, str]:
    """What stands before the batch size in the titles of studies: nothing where there is one workload only."""
    names = list(workloads)
    if len(names) < 2:
        return dict.fromkeys(names, "batch size")
    return {name: f"{label}: batch size" for name, label in differing_labels(names).items()}


def count(number: int, noun: str) -> str:
    """A number of things in words.

    >>> count(1, "trial"), count(1200, "trial")
    ('1 trial', '1,200 trials')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def none_reached(number: int, noun: str = "trial") -> str:
    """That none of so many reached a goal, which follows.

    >>> none_reached(1), none_reached(12)
    ('the only trial did not reach', 'none of the 12 trials reached')
    """
    return f"the only {noun} did not reach" if number == 1 else f"none of the {number:,} {noun}s reached"


def metric_label(metric: str, *, unit: bool = True) -> str:
    """A metric of a split in words, with its unit where it has one.

    >>> metric_label("val/cross_entropy_error")
    'validation cross entropy error (nats)'
    """
    split, _, name = metric.partition("/")
    words = f"{_SPLITS.get(split, split)} {name.replace('_', ' ')}"
    metric_unit = labels.metric_unit(name) if unit else ""
    return one_line(f"{words} ({metric_unit})" if metric_unit else words, 80)


def goal_label(goal: Goal) -> str:
    """A goal in words: ``validation classification error < 0.01``."""
    return f"{metric_label(goal.metric, unit=False)} {'>' if goal.maximize else '<'} {goal.value:g}"


def metaparameter_label(name: str) -> str:
    """A metaparameter in words, with the paper's sign where it has one."""
    return one_line(_METAPARAMETERS.get(name, name), 60)


def differing_labels(workloads: Iterable[WorkloadName]) -> dict[WorkloadName, str]:
    """The shortest words that tell these workloads apart: only what differs between them is named.

    >>> a, b = WorkloadName("mnist", "fc_1024", "sgd"), WorkloadName("mnist", "fc_1024", "momentum")
    >>> list(differing_labels([a, b]).values())
    ['SGD', 'Momentum']
    """
    names = list(workloads)
    parts = [
        ({name: model_label(name.model) for name in names}, len({name.model for name in names}) > 1),
        ({name: dataset_label(name.dataset) for name in names}, len({name.dataset for name in names}) > 1),
        ({name: optimizer_label(name.optimizer) for name in names}, len({name.optimizer for name in names}) > 1),
    ]
    chosen = [labels for labels, differs in parts if differs]
    if not chosen:
        return {name: workload_label(name) for name in names}
    short = {name: ", ".join(labels[name] for labels in chosen) for name in names}
    return short if len(set(short.values())) == len(set(names)) else {name: str(name) for name in names}
