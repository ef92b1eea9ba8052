"""What is launched: a chosen configuration with its training command, as every format needs it."""

import math
import re
from dataclasses import dataclass, replace

from batchscale.errors import PlanningError, one_line
from batchscale.planning.answers import Choice
from batchscale.planning.jobs.command import TrainCommand

PORT = 8476
LEAST_LIMIT_S = 600.0
IMAGE = re.compile(r"[a-z0-9]([a-z0-9._:/@-]{0,250}[a-z0-9])?")
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")


@dataclass(frozen=True)
class JobLaunch:
    """A job of ``hosts`` hosts, each of which runs the command once.

    Attributes:
        name: Small letters, digits and hyphens, as all formats allow.
        command: What each host runs.
        hosts: How many.
        devices_per_host: Devices of each.
        device: Their kind.
        machine: As the provider calls a host.
        image: The container image, made from the Dockerfile that is written beside the job.
        records: Where the records go; on several hosts a folder that all of them see.
        limit_s: After which the system may end the job.
        addresses: Of the hosts, the chief first, where a format needs them.
        spot: Whether hosts may be taken away: asked for as such wherever the system knows the word.
    """

    name: str
    command: TrainCommand
    hosts: int
    devices_per_host: int
    device: str
    machine: str
    image: str = "batchscale:latest"
    records: str = "records"
    limit_s: float | None = None
    addresses: tuple[str, ...] = ()
    spot: bool = False

    def __post_init__(self) -> None:
        if not IMAGE.fullmatch(self.image):
            raise PlanningError(
                f"A container image is named registry/name:tag in small letters. Found {one_line(repr(self.image))}."
            )
        for address in self.addresses:
            if not HOST.fullmatch(address):
                raise PlanningError(f"An address is a host name or an IPv4 address. Found {one_line(repr(address))}.")
        if self.addresses and len(self.addresses) != self.hosts:
            raise PlanningError(f"Each of {self.hosts} hosts has an address. Found {len(self.addresses)}.")
        if not re.fullmatch(r"[A-Za-z0-9_./:@%+=,-]+", self.records):
            raise PlanningError(
                "The folder of the records has letters, digits and _ . / : @ % + = , - only. Found "
                f"{one_line(repr(self.records))}."
            )

    @property
    def host_addresses(self) -> tuple[str, ...]:
        """The addresses given, or names to put in."""
        return self.addresses or tuple(f"host-{i}" for i in range(self.hosts))


def make_job(choice: Choice, command: TrainCommand, **settings: object) -> JobLaunch:
    """The job of a plan's configuration. Its limit is twice the upper end of its time, and ten minutes at least."""
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
    )
    return replace(job, **settings)  # type: ignore[arg-type]


def job_name(text: str) -> str:
    """A name that SLURM, Kubernetes, SkyPilot and Vertex AI all take.

    >>> job_name("NVIDIA T4-4x2-b128")
    'batchscale-nvidia-t4-4x2-b128'
    """
    letters = re.sub(r"[^a-z0-9]+", "-", f"batchscale-{text}".casefold()).strip("-")
    return letters[:50].rstrip("-")


def choice_metaparameters(text: str) -> dict[str, str]:
    """The metaparameters that can be set, from a plan's column: numbers only.

    >>> choice_metaparameters("learning_rate 0.001, optimizer adam")
    {'learning_rate': '0.001'}
    """
    found = {}
    for part in filter(None, text.split(", ")):
        name, _, value = part.rpartition(" ")
        try:
            number = float(value)
        except ValueError:
            continue
        if name and math.isfinite(number):
            found[name] = value
    return found


def give_up_steps(choice: Choice) -> int:
    """The step budget of the run: where runs are given up, else well above the interval of the steps."""
    if choice["give_up"] is not None:
        return math.ceil(float(choice["give_up"]))
    return math.ceil(1.5 * float(choice["steps_high"] or choice["steps"]))
