"""``[trainer]``: a training script of the user's own in place of our engine.

Owns the values of the table and the placeholders of its texts. Starting the script is in ``trainers``.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from batchscale.errors import SpecError, one_line, suggest_names

TRIAL_PLACEHOLDERS = (
    "batch_size",
    "seed",
    "trial_id",
    "max_steps",
    "until_step",
    "device",
    "folder",
    "checkpoint",
    "trial_file",
)
"""The placeholders of a command besides the metaparameters."""

_PER_TRIAL = ("folder", "checkpoint", "trial_id")
_PARTS = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}|(?P<stray>[{}])")


class ReportSource(StrEnum):
    """The source of measurements: the protocol's own file, or the output of a script that does not use it."""

    PROTOCOL = "protocol"
    PATTERN = "pattern"
    CSV = "csv"
    JSON_LINES = "jsonl"


@dataclass(frozen=True)
class ReportsSpec:
    """The form of a script's measurements: ``text`` is the pattern of printed lines, or the path of a file.

    ``names`` maps the script's names of metrics (and of the step) to ours.
    """

    source: ReportSource = ReportSource.PROTOCOL
    text: str = ""
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainerSpec:
    """A training script. ``folder``, where the experiment file is, is its working folder.

    ``resume`` means that the script can continue from its checkpoint folder. ``max_paused`` trials wait in memory on
    each worker (None: as many as fit). ``timeout_s`` is the longest time between two measurements, ``grace_s`` the time
    to save before the script is killed. ``pass_env`` names variables of the user's environment that must be set.
    """

    command: tuple[str, ...]
    folder: Path = Path()
    resume: bool = False
    workers: int | None = None
    devices: tuple[str, ...] = ()
    timeout_s: float = 3600.0
    grace_s: float = 10.0
    max_paused: int | None = None
    num_train_examples: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    reports: ReportsSpec = field(default_factory=ReportsSpec)

    def identity(self) -> dict[str, Any]:
        """Return what must be equal when a run is continued: what is trained, not how it is executed.

        The content of a script that the command names is part of it.
        """
        reports = {"source": self.reports.source.value, "text": self.reports.text, "names": dict(self.reports.names)}
        scripts = {}
        for word in self.command:
            path = self.folder / word
            if "{" not in word and len(word) < 500 and path.suffix and path.is_file():
                scripts[word] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        return {
            "command": list(self.command),
            "env": dict(self.env),
            "num_train_examples": self.num_train_examples,
            "reports": reports,
            "scripts": scripts,
        }


def render(text: str, values: Mapping[str, str], where: str) -> str:
    """Fill in the ``{name}`` placeholders of a text; ``{{`` and ``}}`` are braces.

    >>> render("--lr={learning_rate}", {"learning_rate": "0.1"}, "command")
    '--lr=0.1'
    """

    def fill(match: re.Match[str]) -> str:
        if match["stray"] is not None:
            raise SpecError(f"{where}: a literal brace must be written twice, {{{{ or }}}}. Found {_quote(text)}.")
        name = match["name"]
        if name is None:
            return match[0][0]
        if name not in values:
            raise SpecError(
                f"{where}: a placeholder must be a metaparameter of the search or one of "
                f"{', '.join(TRIAL_PLACEHOLDERS)}. Found {_quote(match[0])} in {_quote(text)}; "
                f"{suggest_names(name, values)}"
            )
        return values[name]

    return _PARTS.sub(fill, text)


def placeholders(text: str) -> list[str]:
    """Return the placeholder names of a text."""
    return [match["name"] for match in _PARTS.finditer(text) if match["name"] is not None]


def check_trainer(trainer: TrainerSpec, metaparameters: Iterable[str]) -> None:
    """Raise SpecError if a text has an unknown placeholder, or lacks a required one."""
    names = dict.fromkeys((*TRIAL_PLACEHOLDERS, *metaparameters), "0")
    for place, word in enumerate(trainer.command):
        render(word, names, f"trainer.command[{place}]")
    for name, text in trainer.env.items():
        render(text, names, f"trainer.env.{name}")
    reports = trainer.reports
    if reports.source in (ReportSource.CSV, ReportSource.JSON_LINES):
        render(reports.text, names, f"trainer.reports.{reports.source}")
        if not set(placeholders(reports.text)) & set(_PER_TRIAL):
            raise SpecError(
                f"trainer.reports.{reports.source}: each trial must write a file of its own, so the path needs one of "
                f"{{{'}, {'.join(_PER_TRIAL)}}}. Found {_quote(reports.text)}."
            )
    named = {name for word in (*trainer.command, *trainer.env.values()) for name in placeholders(word)}
    if reports.source is not ReportSource.PROTOCOL:
        missing = sorted({"batch_size", *metaparameters} - named)
        if missing:
            raise SpecError(
                "trainer.command: a script that only prints must get its values from its command or env. Found "
                f"no placeholder {{{missing[0]}}}. Add it, or let the script read the file named in BATCHSCALE_TRIAL."
            )
    if "device" in named and not trainer.devices:
        raise SpecError("trainer.devices must list the devices that the placeholder {device} stands for. Found none.")


def _quote(text: str) -> str:
    return one_line(repr(text))
