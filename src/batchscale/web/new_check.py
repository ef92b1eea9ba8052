"""The check of any experiment file that comes from a browser: that of the command line, and one rule on top.

The rule: text from a browser names no Python file, no command and no other path, whatever key it stands under.
"""

from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import BatchscaleError, SpecError, one_line
from batchscale.spec.experiment import Experiment
from batchscale.spec.file import parse_experiment
from batchscale.spec.plan import Plan, make_plan

LARGEST_TEXT = 200_000
NAMING_OPTIONS = ("path", "hf")  # options of data sets that say where files are


@dataclass(frozen=True)
class CheckedText:
    """What is wrong with a text (empty: nothing), else what it would run; ``missing_data`` says how to get its data."""

    problem: str = ""
    batch_sizes: tuple[int, ...] = ()
    trials: int = 0
    trial_steps: int = 0
    missing_data: str = ""


def check_text(text: str) -> Experiment:
    """The experiment of a text from a browser.

    Raises:
        SpecError: it says something that cannot be run, or names a file or a command.
    """
    if len(text) > LARGEST_TEXT:
        raise SpecError(
            f"An experiment file from a browser has at most {LARGEST_TEXT:,} characters. Found {len(text):,}."
        )
    experiment = parse_experiment(text, "experiment.toml", Path("/nonexistent"))
    if experiment.trainer is not None or experiment.workload.file is not None:
        raise SpecError(
            "Own Python files and trainer commands do not come from a browser. Put the experiment file into the folder "
            "that the server was started with (--own-files) and choose it there."
        )
    for key, option in (*experiment.workload.dataset_options.items(), *experiment.workload.model_options.items()):
        is_path = isinstance(option, str) and ("/" in option or "\\" in option or option.startswith((".", "~")))
        if is_path or key in NAMING_OPTIONS:
            raise SpecError(f"Options from a browser name no files. Found {one_line(key)} = {one_line(option)!r}.")
    return experiment


def plan_text(text: str) -> Plan:
    """What a text from a browser would run, held against what is known of its workload, without JAX and without data.

    Raises:
        BatchscaleError: it cannot be run: its workload does not exist, or does not report the goal's metric, or …
    """
    from batchscale.workloads.registry import workload_info

    experiment = check_text(text)
    return make_plan(experiment, workload_info(experiment.workload))


def try_text(text: str) -> CheckedText:
    """What is wrong with a text, or what it would run."""
    try:
        plan = plan_text(text)
        return CheckedText(
            "", tuple(study.batch_size for study in plan.studies), sum(study.trials for study in plan.studies),
            plan.trial_steps, _missing_data(plan.experiment),
        )  # fmt: skip
    except BatchscaleError as error:
        return CheckedText(one_line(error, 600))


def _missing_data(experiment: Experiment) -> str:
    from batchscale.workloads.datasets.files.locations import find_dataset

    found = find_dataset(experiment.workload.name.dataset, None, experiment.workload.dataset_options)
    return one_line(found.how, 400) if found.needs_files and found.path is None else ""
