"""Checks of experiment files: those from a browser, their estimates, and the files of the server's own folder.

Text from a browser is checked like a file of the command line, with one rule more: it names no Python file, no command
and no other path, under any key.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchscale.errors import BatchscaleError, RunError, SpecError, one_line
from batchscale.spec.experiment import Experiment
from batchscale.spec.file import parse_experiment
from batchscale.spec.plan import Plan, make_plan
from batchscale.web.records_folders import visible
from batchscale.web.refusals import RefusedError

MAX_CHARACTERS = 200_000
MAX_FILES = 500
MAX_ESTIMATE_S = 120.0
PATH_OPTIONS = ("path", "hf")  # options of data sets that name files


_ESTIMATING = threading.Lock()


@dataclass(frozen=True)
class CheckedText:
    """The problem of a text (empty: none), else the trials it would run; ``missing_data`` names how to get its data."""

    problem: str = ""
    batch_sizes: tuple[int, ...] = ()
    trials: int = 0
    trial_steps: int = 0
    missing_data: str = ""


def check_text(text: str) -> Experiment:
    """Return the experiment of a text from a browser.

    Raises:
        SpecError: it cannot be run, or names a file or a command.
    """
    if len(text) > MAX_CHARACTERS:
        raise SpecError(
            f"An experiment file from a browser must have at most {MAX_CHARACTERS:,} characters. Found {len(text):,}."
        )
    experiment = parse_experiment(text, "experiment.toml", Path("/nonexistent"))
    if experiment.trainer is not None or experiment.workload.file is not None:
        raise SpecError(
            "Python files and trainer commands cannot come from a browser. Put the experiment file into the folder "
            "that the server was started with (--own-files) and choose it there."
        )
    if experiment.adaptive is not None and experiment.adaptive.aim.is_decision:
        raise SpecError(
            f"Files of machines and step times cannot come from a browser, and quantity = '{experiment.adaptive.aim}' "
            "needs them. Ask for a batch size, or put the experiment file into the folder that the server was started "
            "with (--own-files) and choose it there."
        )
    for key, option in (*experiment.workload.dataset_options.items(), *experiment.workload.model_options.items()):
        is_path = isinstance(option, str) and ("/" in option or "\\" in option or option.startswith((".", "~")))
        if is_path or key in PATH_OPTIONS:
            raise SpecError(
                f"Options from a browser must not name files. Found {one_line(key)} = {one_line(option)!r}."
            )
    return experiment


def plan_text(text: str) -> Plan:
    """Return the plan of a text from a browser, checked against its workload, without JAX and without data.

    Raises:
        BatchscaleError: it cannot be run; for example, its workload does not report the goal's metric.
    """
    from batchscale.workloads.registry import workload_info

    experiment = check_text(text)
    return make_plan(experiment, workload_info(experiment.workload))


def try_text(text: str) -> CheckedText:
    """Return the problem of a text, or the trials it would run."""
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

    dataset = find_dataset(experiment.workload.name.dataset, None, experiment.workload.dataset_options)
    return one_line(dataset.how, 400) if dataset.needs_files and dataset.path is None else ""


def estimate(text: str, workers: int | None) -> dict[str, Any]:
    """Return the object of ``batchscale validate --json``, with the time of the run on as many workers as it will have.

    The command runs in a process of its own, because it loads JAX.

    Raises:
        RunError: the experiment is refused, with the reason, or timing it takes too long.
    """
    if not _ESTIMATING.acquire(blocking=False):
        raise RunError("Another estimate is running. Wait a moment and try again.")
    try:
        with tempfile.TemporaryDirectory(prefix="batchscale-") as folder:
            file = Path(folder) / "experiment.toml"
            file.write_text(text, encoding="utf-8")
            command = [sys.executable, "-m", "batchscale", "validate", str(file), "--time", "--json"]
            if workers is not None:
                command += ["--workers", str(workers)]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=MAX_ESTIMATE_S, stdin=subprocess.DEVNULL, check=False,
                env={**os.environ, "NO_COLOR": "1"}, cwd=folder,
            )  # fmt: skip
            if done.returncode != 0:
                raise RunError(one_line(done.stderr.strip().replace(f"{folder}/", ""), 600) or "The check failed.")
            estimated: dict[str, Any] = json.loads(done.stdout)
            return estimated
    except subprocess.TimeoutExpired:
        raise RunError(
            f"Timing the steps takes longer than {MAX_ESTIMATE_S:g} s here; start the run and monitor it."
        ) from None
    except ValueError:
        raise RunError("The estimate could not be read.") from None
    finally:
        _ESTIMATING.release()


def list_own_files(folder: Path | None) -> dict[str, tuple[str, Path]]:
    """Return (name, path) of each experiment file of the server's own folder by its id; no links."""
    if folder is None:
        return {}
    paths = [path for path in sorted(folder.glob("*.toml")) if path.is_file() and not path.is_symlink()]
    ids = [hashlib.sha256(path.name.encode()).hexdigest()[:16] for path in paths[:MAX_FILES]]
    return {id_: (visible(path.name, 80), path) for id_, path in zip(ids, paths, strict=False)}


def find_own_file(folder: Path | None, file_id: str) -> Path:
    """Return the file of an id."""
    file = list_own_files(folder).get(file_id)
    if file is None:
        raise RefusedError(404, "There is no such experiment file in the folder that the server was started with.")
    return file[1]
