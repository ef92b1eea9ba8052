"""The training command of a job, and which of our options it uses: the one place that names them.

Several devices and several hosts need options that the caller must know to exist: no job is written with an option
that the installed command does not have.
"""

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from batchscale.errors import PlanningError

BATCH_SIZE = "--batch-size"
STEPS = "--steps"
SET = "--set"
EARLY_STOP = "--early-stop"
OUT = "--out"
RESUME = "--resume"
DEVICES = "--devices"
CLUSTER = "--cluster"

ALWAYS = (BATCH_SIZE, STEPS, SET, EARLY_STOP, OUT, RESUME)
"""What every job may use."""


@dataclass(frozen=True)
class TrainCommand:
    """One training run as ``batchscale train`` is told.

    ``target`` is an experiment file or dataset/model/optimizer. ``steps`` is where the run is given up. The folder of
    the records is the job's, not the command's: it differs between formats.
    """

    target: str
    batch_size: int
    steps: int
    metaparameters: Mapping[str, str] = field(default_factory=dict)
    early_stop: str | None = None

    def words(self, devices_per_host: int) -> list[str]:
        """The command, without the folder it writes to and without --resume, which the launcher decides."""
        words = ["batchscale", "train", self.target, BATCH_SIZE, str(self.batch_size), STEPS, str(self.steps)]
        for name, value in self.metaparameters.items():
            words += [SET, f"{name}={value}"]
        if self.early_stop:
            words += [EARLY_STOP, self.early_stop]
        if devices_per_host > 1:
            words += [DEVICES, "all"]
        return words

    def line(self, devices_per_host: int) -> str:
        """The command as a line for a POSIX shell."""
        return shlex.join(self.words(devices_per_host))


def needed_options(hosts: int, devices_per_host: int) -> tuple[str, ...]:
    """The options of ``batchscale train`` that a job of this size needs.

    Hosts find each other in the environment (SLURM's variables, TF_CONFIG); that comes with ``--cluster``.
    """
    several = (DEVICES,) if devices_per_host > 1 else ()
    return (*ALWAYS, *several, *((CLUSTER,) if hosts > 1 else ()))


def check_options(hosts: int, devices_per_host: int, known: Collection[str]) -> None:
    """Refuses a job that this version of the command cannot run."""
    missing = [option for option in needed_options(hosts, devices_per_host) if option not in known]
    if missing:
        size = f"{hosts} × {devices_per_host} devices"
        raise PlanningError(
            f"A job over {size} needs 'batchscale train' with {', '.join(missing)}, which this version does not have. "
            "Pick a configuration of one device (--pick cheapest, or --max-hosts 1 with machines of one device), or "
            "use your own trainer there."
        )
