"""The instruments of a server: one folder each, below ``instruments`` in the first folder that is served.

Browsers send ids and numbers only; the server names the files.
"""

import importlib.util
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from batchscale.errors import SpecError
from batchscale.instruments.playing.instrument import DESCRIPTION
from batchscale.instruments.web.uploads import list_uploads
from batchscale.records.durable import replace_durably
from batchscale.records.tree.layout import StudyPaths
from batchscale.spec.workload_name import WorkloadName
from batchscale.web.records_folders import make_records_folder, visible
from batchscale.web.refusals import RefusedError

FOLDER = "instruments"
MARK = "batchscale-instrument.json"
SETTINGS = "wish.json"
MAX_INSTRUMENTS = 200
MODELS = ("ddsp_tiny", "ddsp_small", "ddsp")
SOUND = re.compile(r"[a-z0-9-]{1,60}\.wav")


@dataclass(frozen=True)
class WebInstrument:
    """One instrument and its files."""

    id: str
    path: Path
    name: str

    @property
    def recordings(self) -> list[Path]:
        """The uploaded recordings to train on."""
        return list_uploads(self.path / "recordings")

    @property
    def voices(self) -> list[Path]:
        """The uploaded recordings to play."""
        return list_uploads(self.path / "voices")

    @property
    def prepared(self) -> dict[str, Any] | None:
        """The report of the preparation; None before it has finished."""
        try:
            report = json.loads((self.path / "prepared.json").read_bytes())
        except (OSError, ValueError):
            return None
        return report if isinstance(report, dict) else None

    @property
    def model(self) -> Path | None:
        """The folder of the latest complete model; None without one."""
        models = self.models
        return models[-1] if models else None

    @property
    def models(self) -> list[Path]:
        """Exported models, oldest first."""
        paths = (self.path / "models").glob("*") if (self.path / "models").is_dir() else ()
        complete = [path for path in paths if path.name.isdigit() and (path / DESCRIPTION).is_file()]
        return sorted(complete, key=lambda path: int(path.name))

    @property
    def settings(self) -> "TrainingSettings | None":
        """The settings of the last training; None before the first."""
        try:
            return TrainingSettings.of_form(json.loads((self.path / SETTINGS).read_bytes()))
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    @property
    def has_checkpoint(self) -> bool:
        """True if the last training can continue from a checkpoint."""
        return self.settings is not None and self.can_continue(self.settings)

    def can_continue(self, settings: "TrainingSettings") -> bool:
        """True if these settings continue the last training and its checkpoint exists; else they make a new trial."""
        last = self.settings
        if last is None or replace(last, steps=settings.steps, loss=settings.loss) != settings:
            return False
        name = WorkloadName("recordings", settings.model, "adam")
        folder = StudyPaths.of(self.path / "trained", name, settings.batch_size).checkpoints
        return folder.is_dir() and any(folder.iterdir())

    @property
    def sounds(self) -> list[Path]:
        """The sounds to listen to, newest first."""
        folder = self.path / "sounds"
        paths = [path for path in folder.iterdir() if SOUND.fullmatch(path.name)] if folder.is_dir() else []
        files = [path for path in paths if path.is_file() and not path.is_symlink()]
        return sorted(files, key=lambda path: (-path.stat().st_mtime, path.name))

    def losses(self) -> list[tuple[int, float]]:
        """Return (step, loss on training examples) as measured so far."""
        return list(_read_losses(self.path / "measurements.jsonl"))


@dataclass(frozen=True)
class TrainingSettings:
    """The settings of the training form."""

    model: str = "ddsp_small"
    steps: int = 1000
    batch_size: int = 8
    learning_rate: float = 0.002
    loss: float = 5.0

    @classmethod
    def of_form(cls, form: dict[str, str]) -> "TrainingSettings":
        """Parse the settings of a form.

        Raises:
            SpecError: a value is out of its range.
        """
        if form.get("model", cls.model) not in MODELS:
            raise SpecError(f"The model must be one of {', '.join(MODELS)}.")
        return cls(
            form.get("model", cls.model),
            int(_parse_number(form, "steps", cls.steps, 3, 10**6)),
            int(_parse_number(form, "batch_size", cls.batch_size, 1, 1024)),
            _parse_number(form, "learning_rate", cls.learning_rate, 1e-7, 1.0),
            _parse_number(form, "loss", cls.loss, 0.0, 1e6),
        )


class WebInstruments:
    """The instruments under one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve() / FOLDER

    @property
    def is_possible(self) -> bool:
        """True if the libraries for sound are installed."""
        return all(importlib.util.find_spec(name) is not None for name in ("soundfile", "soxr", "swift_f0"))

    def all(self) -> list[WebInstrument]:
        """Return every instrument, in order of names."""
        if not self.folder.is_dir():
            return []
        folders = [path for path in sorted(self.folder.iterdir()) if path.is_dir() and not path.is_symlink()]
        return [self._open(path) for path in folders if (path / MARK).is_file()][:MAX_INSTRUMENTS]

    def find(self, instrument_id: str) -> WebInstrument:
        """Return the instrument of an id.

        Raises:
            RefusedError: It does not exist.
        """
        instrument = next((instrument for instrument in self.all() if instrument.id == instrument_id), None)
        if instrument is None:
            raise RefusedError(404, "There is no such instrument, or not any more.")
        return instrument

    def make(self, name: str) -> WebInstrument:
        """Make a new instrument; ``name`` has been checked."""
        path = self.folder / name
        if len(self.all()) >= MAX_INSTRUMENTS:
            raise RefusedError(409, f"A server has at most {MAX_INSTRUMENTS} instruments. Remove one first.")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise RefusedError(409, f"The name {name} is taken. Choose another.") from None
        for part in ("recordings", "voices", "sounds", "models"):
            (path / part).mkdir()
        replace_durably(path / MARK, '{"version": 1}\n')
        return self._open(path)

    def _open(self, path: Path) -> WebInstrument:
        return WebInstrument(make_records_folder(path, path.parent).id, path, visible(path.name))


def _read_losses(file: Path) -> Iterator[tuple[int, float]]:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            row = json.loads(line)
            yield int(row["step"]), float(row["train/total_loss"])
        except (ValueError, TypeError, KeyError):
            continue  # a line that is being written


def _parse_number(form: dict[str, str], key: str, default: float, low: float, high: float) -> float:
    text = form.get(key, "").strip()
    try:
        value = float(text) if text else float(default)
    except ValueError:
        raise SpecError(f"{key} must be a number.") from None
    if not low <= value <= high:
        raise SpecError(f"{key} must lie between {low:g} and {high:g}. Found {value:g}.")
    return value
