"""Check an experiment completely before anything runs or is written."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from batchscale.errors import NO_ENGINE, DataError, RunError, SpecError, UnknownNameError, one_line
from batchscale.run.user_file import load_user_file
from batchscale.spec.experiment import Experiment
from batchscale.spec.plan import Plan, WorkloadInfo, make_plan
from batchscale.trainers.command import describe_trainer
from batchscale.workloads.datasets.files.locations import find_dataset
from batchscale.workloads.registry import workload_info


def make_checked_plan(
    experiment: Experiment, data_dir: Path | None, should_stop: Callable[[], bool] = lambda: False
) -> Plan:
    """Return the plan of an experiment whose workload exists, fits the goal, and has its data on this machine.

    Raises:
        UnknownNameError: a part of the workload, or an option, does not exist.
        SpecError: goal, batch sizes or search space do not fit the workload.
        DataError: the data is not on this machine.
        RunError: the built-in engine is not installed.
        KeyboardInterrupt: ``should_stop`` returned True while the user's Python file was being checked.
    """
    if data_dir is not None and not data_dir.is_dir():
        raise DataError(
            f"--data-dir must be an existing folder: {one_line(data_dir, 300)} is none. Create it, or give another."
        )
    if experiment.trainer is None and find_spec("jax") is None:
        raise RunError(NO_ENGINE)
    try:
        plan = make_plan(experiment, find_facts(experiment, data_dir, should_stop))
    except (SpecError, UnknownNameError) as error:
        raise type(error)(f"{one_line(experiment.source, 300)}: {error}") from None
    if experiment.workload.file is None and experiment.trainer is None:
        _require_data(experiment, data_dir)
    return plan


def find_facts(
    experiment: Experiment, data_dir: Path | None, should_stop: Callable[[], bool] = lambda: False
) -> WorkloadInfo:
    """Return the facts of the experiment's workload: built-in, from the user's Python file, or of a training script."""
    if experiment.trainer is not None:
        return describe_trainer(experiment)
    if experiment.workload.file is not None:
        return load_user_file(experiment, data_dir, should_stop)
    return workload_info(experiment.workload, data_dir)


def _require_data(experiment: Experiment, data_dir: Path | None) -> None:
    name = experiment.workload.name.dataset
    dataset = find_dataset(name, data_dir, experiment.workload.dataset_options)
    if dataset.needs_files and dataset.path is None:
        raise DataError(f"The data set '{name}' must be on this machine. It was not found: {dataset.how}.")
