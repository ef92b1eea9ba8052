"""Everything that can be wrong with an experiment, found before anything runs or is written."""

from collections.abc import Callable
from pathlib import Path

from batchscale.errors import DataError, SpecError, UnknownNameError, one_line
from batchscale.run.own_file import find_own_facts
from batchscale.spec.experiment import Experiment
from batchscale.spec.plan import Plan, WorkloadInfo, make_plan
from batchscale.trainers.facts import trainer_facts
from batchscale.workloads.catalogue import workload_info
from batchscale.workloads.datasets.presence import find_dataset


def make_checked_plan(
    experiment: Experiment, data_dir: Path | None, should_stop: Callable[[], bool] = lambda: False
) -> Plan:
    """The plan of an experiment whose workload exists, fits the goal, and has its data here.

    Raises:
        UnknownNameError: a part of the workload, or an option, does not exist.
        SpecError: goal, batch sizes or search space do not fit the workload.
        DataError: the data is not there; says what to run.
        KeyboardInterrupt: ``should_stop`` said so while a file of the user's own was being checked.
    """
    if data_dir is not None and not data_dir.is_dir():
        raise DataError(f"--data-dir is a folder. Found nothing of that kind at {one_line(data_dir, 300)}.")
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
    """What is known of the experiment's workload before it runs: ours, the user's own, or a script's."""
    if experiment.trainer is not None:
        return trainer_facts(experiment)
    if experiment.workload.file is not None:
        return find_own_facts(experiment, data_dir, should_stop)
    return workload_info(experiment.workload, data_dir)


def _require_data(experiment: Experiment, data_dir: Path | None) -> None:
    name = experiment.workload.name.dataset
    found = find_dataset(name, data_dir, experiment.workload.dataset_options)
    if found.needs_files and found.path is None:
        raise DataError(f"The data set '{name}' must be on this machine. It was not found: {found.how}.")
