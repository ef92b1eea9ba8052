"""A job: a configuration of a plan with its training command, as every format needs it.

All options of ``batchscale train`` that jobs use are named here. A job over several devices or hosts is refused if the
installed command lacks an option for it.
"""

import math
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from batchscale.errors import PlanningError, one_line
from batchscale.planning.estimate_text import memory_text
from batchscale.planning.jobs.own_script import EXPERIMENT, ScriptCommand
from batchscale.planning.recommend import Choice

PORT = 8476
LEAST_LIMIT_S = 600.0
IMAGE = re.compile(r"[a-z0-9]([a-z0-9._:/@-]{0,250}[a-z0-9])?")
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")

BATCH_SIZE = "--batch-size"
STEPS = "--steps"
SET = "--set"
EARLY_STOP = "--early-stop"
MICROBATCH = "--microbatch"
OUT = "--out"
MIRROR = "--mirror"
DEVICES = "--devices"
CLUSTER = "--cluster"

CONTAINER_FORMATS = ("kubernetes", "jobset", "skypilot", "vertex")
"""The formats that run the image; the others run on hosts that have the user's environment."""

ALWAYS = (BATCH_SIZE, STEPS, SET, EARLY_STOP, MICROBATCH, OUT, MIRROR)
"""The options that every job may use."""


@dataclass(frozen=True)
class TrainCommand:
    """One training run of ``batchscale train``.

    ``target`` is an experiment file or dataset/model/optimizer. ``steps`` is the step at which the run is given
    up. ``microbatch`` is set if a plan found that a device cannot hold its share at once. The folder of the records
    belongs to the job, because it differs between formats.
    """

    target: str
    batch_size: int
    steps: int
    metaparameters: Mapping[str, str] = field(default_factory=dict)
    early_stop: str | None = None
    microbatch: int | None = None

    def words(self, devices_per_host: int) -> list[str]:
        """Return the command without --out, which the launcher adds."""
        words = ["batchscale", "train", self.target, BATCH_SIZE, str(self.batch_size), STEPS, str(self.steps)]
        for name, value in self.metaparameters.items():
            words += [SET, f"{name}={value}"]
        if self.early_stop:
            words += [EARLY_STOP, self.early_stop]
        if self.microbatch is not None:
            words += [MICROBATCH, str(self.microbatch)]
        if devices_per_host > 1:
            words += [DEVICES, "all"]
        return words

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the names of environment variables that the job needs: none."""
        return ()


def needed_options(hosts: int, devices_per_host: int) -> tuple[str, ...]:
    """Return the options of ``batchscale train`` that a job of this size needs.

    Hosts find each other in the environment (SLURM's variables, TF_CONFIG); that comes with ``--cluster``.
    """
    several = (DEVICES,) if devices_per_host > 1 else ()
    return (*ALWAYS, *several, *((CLUSTER,) if hosts > 1 else ()))


def check_options(hosts: int, devices_per_host: int, train_options: Collection[str]) -> None:
    """Raise an error for a job that this version of the command cannot run."""
    missing = [option for option in needed_options(hosts, devices_per_host) if option not in train_options]
    if missing:
        size = f"{hosts} × {devices_per_host} devices"
        raise PlanningError(
            f"A job over {size} needs 'batchscale train' with {', '.join(missing)}, which this version does not have. "
            "Pick a configuration of one device (--pick cheapest, or --max-hosts 1 with machines of one device), or "
            "use your own trainer there."
        )


@dataclass(frozen=True)
class JobLaunch:
    """A job of ``hosts`` hosts, each of which runs the command once.

    Attributes:
        name: Small letters, digits and hyphens, as all formats allow.
        command: The command of each host.
        hosts: The number of hosts.
        devices_per_host: Devices of each.
        device: Their kind.
        machine: The provider's name of a host.
        image: The container image, made from the Dockerfile that is written beside the job.
        records: The folder of the records, with several hosts one that all of them see; or a remote path to mirror.
        limit_s: The time after which the system may end the job.
        addresses: Addresses of the hosts, the chief first, for formats that need them.
        spot: True to request hosts that may be taken away, on systems that have them.
        memory: How the plan fits a step into memory, in words; empty if it fits whole, or if that is not known.
    """

    name: str
    command: TrainCommand | ScriptCommand
    hosts: int
    devices_per_host: int
    device: str
    machine: str
    image: str = "batchscale:latest"
    records: str = "records"
    limit_s: float | None = None
    addresses: tuple[str, ...] = ()
    spot: bool = False
    memory: str = ""

    def __post_init__(self) -> None:
        if not IMAGE.fullmatch(self.image):
            raise PlanningError(
                f"A container image must be named registry/name:tag in small letters. Found "
                f"{one_line(repr(self.image))}."
            )
        for address in self.addresses:
            if not HOST.fullmatch(address):
                raise PlanningError(
                    f"An address must be a host name or an IPv4 address. Found {one_line(repr(address))}."
                )
        if self.addresses and len(self.addresses) != self.hosts:
            raise PlanningError(f"Each of {self.hosts} hosts needs an address. Found {len(self.addresses)}.")
        if not re.fullmatch(r"[A-Za-z0-9_./:@%+=,-]+", self.records):
            raise PlanningError(
                "The folder of the records may have letters, digits and _ . / : @ % + = , - only. Found "
                f"{one_line(repr(self.records))}."
            )
        if self.is_remote and isinstance(self.command, ScriptCommand):
            raise PlanningError(
                "--records must be a folder for a script of your own: the script stores its checkpoints in it. Found "
                f"{one_line(self.records)}; mount the storage on the hosts and give its folder."
            )

    @property
    def is_remote(self) -> bool:
        """True if the records are mirrored to a remote path."""
        return "://" in self.records

    @property
    def command_line(self) -> str:
        """Return the command of a host as a line for a POSIX shell, without the records."""
        if isinstance(self.command, ScriptCommand):
            return f"batchscale run {EXPERIMENT} --workers 1"
        return shlex.join(self.command.words(self.devices_per_host))

    @property
    def host_addresses(self) -> tuple[str, ...]:
        """Return the addresses, or names to replace by them."""
        return self.addresses or tuple(f"host-{i}" for i in range(self.hosts))


def make_job(choice: Choice, command: TrainCommand | ScriptCommand, **settings: object) -> JobLaunch:
    """Return the job of a configuration. Its limit is twice the upper end of its time, and ten minutes at least."""
    high = choice["expected_time_high_s"] or choice["expected_time_s"]
    job = JobLaunch(
        name=job_name(f"{choice['device']}-{choice['hosts']}x{choice['devices_per_host']}-b{choice['batch_size']}"),
        command=command,
        hosts=choice["hosts"],
        devices_per_host=choice["devices_per_host"],
        device=choice["device"],
        machine=choice["machine"],
        limit_s=max(LEAST_LIMIT_S, 2 * high),
        spot=choice["spot"],
        memory=memory_text(choice),
    )
    return replace(job, **settings)  # type: ignore[arg-type]


def job_name(text: str) -> str:
    """Return a name that SLURM, Kubernetes, SkyPilot and Vertex AI all accept.

    >>> job_name("NVIDIA T4-4x2-b128")
    'batchscale-nvidia-t4-4x2-b128'
    """
    letters = re.sub(r"[^a-z0-9]+", "-", f"batchscale-{text}".casefold()).strip("-")
    return letters[:50].rstrip("-")


def choice_metaparameters(text: str) -> dict[str, str]:
    """Return the metaparameters of a plan's column that are numbers, and so can be set.

    >>> choice_metaparameters("learning_rate 0.001, optimizer adam")
    {'learning_rate': '0.001'}
    """
    values = {}
    for part in filter(None, text.split(", ")):
        name, _, value = part.rpartition(" ")
        try:
            number = float(value)
        except ValueError:
            continue
        if name and math.isfinite(number):
            values[name] = value
    return values


def give_up_steps(choice: Choice) -> int:
    """Return the step budget of the run: the step to give up at, else well above the interval of the steps."""
    if choice["give_up"] is not None:
        return math.ceil(float(choice["give_up"]))
    return math.ceil(1.5 * float(choice["steps_high"] or choice["steps"]))
