"""The batch script of a worker, and the words of ``sbatch`` that go with it."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from batchscale.spec.experiment import SlurmOptions

START = "import sys; sys.path[:] = {path}; from batchscale.workers.slurm.worker import main; main(sys.argv[1:])"


def worker_script(words: Sequence[str]) -> str:
    """The script of a worker with these arguments: it becomes the worker, so that SLURM's signals reach it.

    A worker finds the same modules as the driver, however that was started.
    """
    path = json.dumps([path for path in sys.path if path])
    return f"#!/bin/sh\nexec {shlex.join([sys.executable, '-c', START.format(path=path), *words])}\n"


def sbatch_words(options: SlurmOptions, log_dir: Path) -> list[str]:
    """What every submission says. The environment goes along: workers find the modules that the driver has."""
    asked = {
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "time": options.time,
        "gpus-per-node": options.gpus,
        "cpus-per-task": options.cpus,
        "mem": options.memory,
    }
    pattern = str(log_dir).replace("%", "%%") + "/slurm-%A_%a.log"
    return [
        *(f"--{name}={value}" for name, value in asked.items() if value is not None),
        "--nodes=1",
        "--ntasks=1",
        "--requeue",
        f"--signal=B:USR1@{options.save_s}",
        "--export=ALL",
        "--chdir=/",
        "--open-mode=append",
        f"--output={pattern}",
        f"--error={pattern}",
        *options.options,
    ]


def log_of(log_dir: Path, job: str, place: int) -> Path:
    """Where a task's process prints."""
    return log_dir / f"slurm-{job}_{place}.log"
