"""``[run.slurm]``: what each worker asks of SLURM, checked: ``sbatch`` gets words, never the text of a shell."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from batchscale.errors import SpecError, one_line

OWN_OPTIONS = (
    "account", "array", "chdir", "cpus-per-task", "error", "exclude", "export", "export-file", "gpus-per-node",
    "help", "input", "job-name", "mem", "nodes", "no-requeue", "ntasks", "open-mode", "output", "parsable", "partition",
    "qos", "quiet", "requeue", "signal", "test-only", "time", "usage", "version", "wait", "wrap",
)  # fmt: skip
"""What the runner says itself, or what would make ``sbatch`` do something else than submit."""

_OPTION = re.compile(r"--(?P<name>[a-z][a-z0-9-]*)(?:=(?P<value>.+))?")
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<parts>\d+(?::\d{1,2}){0,2})")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:,@+&|()*\[\]-]*")


@dataclass(frozen=True)
class SlurmOptions:
    """What one worker asks for, and ``save_s``: how long before the time limit it saves and is put in the queue again.

    ``time`` is a limit as SLURM writes it; ``gpus`` is a number, or kind and number ("a100:1").
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str | None = None
    gpus: str | None = None
    cpus: int | None = None
    memory: str | None = None
    save_s: int = 120
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key in ("partition", "account", "qos", "gpus", "memory"):
            _check_word(key, getattr(self, key))
        _check_options(self.options)
        limit_s = self.limit_s
        if limit_s is not None and limit_s < 2 * self.save_s:
            raise SpecError(
                f"slurm.time is at least twice save_s, or a worker would save all the time. Found {self.time} with "
                f"save_s = {self.save_s}; ask for more time, or lower save_s."
            )

    @property
    def limit_s(self) -> int | None:
        """The time limit in seconds."""
        return None if self.time is None else time_limit_s(self.time)

    @property
    def num_gpus(self) -> int:
        """How many GPUs a worker has."""
        return 0 if self.gpus is None else int(self.gpus.rpartition(":")[2])


def time_limit_s(text: str) -> int:
    """A time limit as SLURM writes it, in seconds.

    >>> [time_limit_s(text) for text in ("90", "2:30", "1:00:00", "1-12", "1-00:30")]
    [5400, 150, 3600, 129600, 88200]
    """
    match = _TIME.fullmatch(text)
    parts = [int(part) for part in match["parts"].split(":")] if match is not None else []
    if match is None or any(part > 10**6 for part in parts):
        raise SpecError(
            "slurm.time is minutes, minutes:seconds, hours:minutes:seconds, days-hours or days-hours:minutes:seconds. "
            f"Found {one_line(repr(text))}."
        )
    if match["days"] is not None:
        days, units = int(match["days"][:6]), [3600, 60, 1]  # days-hours:minutes:seconds
    else:
        days, units = 0, [60] if len(parts) == 1 else [3600, 60, 1][-len(parts) :]
    return days * 86_400 + sum(part * unit for part, unit in zip(parts, units, strict=False))


def _check_word(key: str, value: str | None) -> None:
    if value is not None and not _WORD.fullmatch(value):
        raise SpecError(f"slurm.{key} is one word as sbatch takes it. Found {one_line(repr(value))}.")
    if key == "gpus" and value is not None and not re.fullmatch(r"([A-Za-z0-9._-]+:)?[1-9]\d{0,3}", value):
        raise SpecError(f'slurm.gpus is a number, or kind and number ("a100:1"). Found {one_line(repr(value))}.')


def _check_options(options: Sequence[str]) -> None:
    for option in options:
        match = _OPTION.fullmatch(option)
        if match is None or not option.isprintable():
            raise SpecError(
                'slurm.options are single words of sbatch such as "--constraint=a100" or "--exclusive". Found '
                f"{one_line(repr(option))}."
            )
        if any(own.startswith(match["name"]) for own in OWN_OPTIONS):  # sbatch takes the beginning of a name for it
            raise SpecError(
                f"slurm.options are those that the runner does not set itself. Found --{match['name']}; use the key of "
                "[run.slurm] if there is one, or leave it out."
            )
