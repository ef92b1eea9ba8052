"""Instruments: folders of recordings that become something to play with, and the commands that get them there.

Each has a folder of its own below ``instruments`` in the first folder that is served. Browsers send ids and numbers;
the files in it have names of ours.
"""

import importlib.util
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from batchscale.errors import SpecError
from batchscale.records.durable import replace_durably
from batchscale.records.tree.layout import StudyPaths
from batchscale.spec.workload_name import WorkloadName
from batchscale.web.chain import ChainStep
from batchscale.web.records_folders import make_records_folder, visible
from batchscale.web.refusals import RefusedError
from batchscale.web.uploads import list_uploads
from batchscale.workloads.audio.instrument import DESCRIPTION

FOLDER = "instruments"
MARK = "batchscale-instrument.json"
WISH = "wish.json"
MOST = 200
MODELS = ("ddsp_tiny", "ddsp_small", "ddsp")
ROUNDS = 3  # of training: after each there is something to listen to
SHORT_STEPS = 300  # training that is over before a round would pay
SOUND = re.compile(r"[a-z0-9-]{1,60}\.wav")

EXPERIMENT = """goal = "train/total_loss < {loss:g}"
batch_sizes = [{batch_size}]

[workload]
dataset = "recordings"
model = "{model}"
optimizer = "adam"
schedule = "exponential"
dataset_options = {{ path = {path}, seconds = {seconds:g}, spacing = {spacing:g} }}

[budget]
steps = {steps}

[evaluation]
every = {every}
examples = {{ train = 32, val = 32, test = 0 }}

[search]
fixed = {{ beta1 = 0.9, beta2 = 0.999, gradient_clip_norm = 3.0, end_learning_rate_factor = 0.98, learning_rate_decay_steps = 10000 }}
"""  # noqa: E501 - a table on one line


@dataclass(frozen=True)
class WebInstrument:
    """One instrument and its files."""

    id: str
    path: Path
    name: str

    @property
    def recordings(self) -> list[Path]:
        """What was uploaded to learn from."""
        return list_uploads(self.path / "recordings")

    @property
    def voices(self) -> list[Path]:
        """What was uploaded to be played by it."""
        return list_uploads(self.path / "voices")

    @property
    def prepared(self) -> dict[str, Any] | None:
        """What the preparation said; None before it has ended."""
        try:
            found = json.loads((self.path / "prepared.json").read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    @property
    def model(self) -> Path | None:
        """The folder of the latest model that was exported whole."""
        found = self.models
        return found[-1] if found else None

    @property
    def models(self) -> list[Path]:
        """Exported models, oldest first."""
        every = (self.path / "models").glob("*") if (self.path / "models").is_dir() else ()
        whole = [path for path in every if path.name.isdigit() and (path / DESCRIPTION).is_file()]
        return sorted(whole, key=lambda path: int(path.name))

    @property
    def wish(self) -> "TrainingWish | None":
        """What was last asked to be trained; None before the first time."""
        try:
            return TrainingWish.of_form(json.loads((self.path / WISH).read_bytes()))
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    @property
    def has_checkpoint(self) -> bool:
        """Whether what was last asked for can go on from where it was."""
        return self.wish is not None and self.can_go_on(self.wish)

    def can_go_on(self, wish: "TrainingWish") -> bool:
        """Whether the wish is for what was trained last, whose state is there; else it is another trial."""
        last = self.wish
        if last is None or replace(last, steps=wish.steps, loss=wish.loss) != wish:
            return False
        name = WorkloadName("recordings", wish.model, "adam")
        folder = StudyPaths.of(self.path / "trained", name, wish.batch_size).checkpoints
        return folder.is_dir() and any(folder.iterdir())

    @property
    def sounds(self) -> list[Path]:
        """What can be listened to, newest first."""
        folder = self.path / "sounds"
        every = [path for path in folder.iterdir() if SOUND.fullmatch(path.name)] if folder.is_dir() else []
        whole = [path for path in every if path.is_file() and not path.is_symlink()]
        return sorted(whole, key=lambda path: (-path.stat().st_mtime, path.name))

    def losses(self) -> list[tuple[int, float]]:
        """(step, loss on training examples) as measured so far."""
        return list(_losses(self.path / "measurements.jsonl"))


@dataclass(frozen=True)
class TrainingWish:
    """What the form of the training asks for."""

    model: str = "ddsp_small"
    steps: int = 1000
    batch_size: int = 8
    learning_rate: float = 0.002
    loss: float = 5.0

    @classmethod
    def of_form(cls, form: dict[str, str]) -> "TrainingWish":
        """The wish of a form.

        Raises:
            SpecError: a value is out of its range.
        """
        if form.get("model", cls.model) not in MODELS:
            raise SpecError(f"The model is one of {', '.join(MODELS)}.")
        return cls(
            form.get("model", cls.model),
            int(_number(form, "steps", cls.steps, 3, 10**6)),
            int(_number(form, "batch_size", cls.batch_size, 1, 1024)),
            _number(form, "learning_rate", cls.learning_rate, 1e-7, 1.0),
            _number(form, "loss", cls.loss, 0.0, 1e6),
        )


class WebInstruments:
    """The instruments under one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve() / FOLDER

    @property
    def is_possible(self) -> bool:
        """Whether the libraries for sound are installed."""
        return all(importlib.util.find_spec(name) is not None for name in ("soundfile", "soxr", "swift_f0"))

    def all(self) -> list[WebInstrument]:
        """Every instrument, in order of names."""
        if not self.folder.is_dir():
            return []
        found = [path for path in sorted(self.folder.iterdir()) if path.is_dir() and not path.is_symlink()]
        return [self._open(path) for path in found if (path / MARK).is_file()][:MOST]

    def find(self, instrument_id: str) -> WebInstrument:
        """The instrument of an id.

        Raises:
            RefusedError: there is none.
        """
        found = next((instrument for instrument in self.all() if instrument.id == instrument_id), None)
        if found is None:
            raise RefusedError(404, "There is no such instrument, or not any more.")
        return found

    def make(self, name: str) -> WebInstrument:
        """A new instrument; ``name`` has been checked."""
        path = self.folder / name
        if len(self.all()) >= MOST:
            raise RefusedError(409, f"At most {MOST} instruments lie here.")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise RefusedError(409, f"There is already something called {name}. Choose another name.") from None
        for part in ("recordings", "voices", "sounds", "models"):
            (path / part).mkdir()
        replace_durably(path / MARK, '{"version": 1}\n')
        return self._open(path)

    def _open(self, path: Path) -> WebInstrument:
        return WebInstrument(make_records_folder(path, path.parent).id, path, visible(path.name))


def prepare_steps(instrument: WebInstrument) -> list[ChainStep]:
    """From recordings to arrays."""
    (instrument.path / "prepared.json").unlink(missing_ok=True)
    words = ("data", "audio", "recordings", "--out", "prepared", "--json")
    return [ChainStep(words, "preparing the recordings", str(instrument.path / "prepared.json"))]


def train_steps(instrument: WebInstrument, wish: TrainingWish) -> list[ChainStep]:
    """Rounds of training, with something to listen to after each."""
    seconds = [float(value) for value in (instrument.prepared or {}).get("seconds", {}).values()]
    short = min(seconds, default=0.0) < 4.0
    text = EXPERIMENT.format(
        loss=wish.loss, batch_size=wish.batch_size, model=wish.model,
        path=json.dumps(str(instrument.path / "prepared")),
        seconds=0.5 if short else 1.0, spacing=0.25 if short else 0.5, steps=wish.steps,
        every=max(1, min(25, wish.steps // 6)),
    )  # fmt: skip
    replace_durably(instrument.path / "train.toml", text)
    steps: list[ChainStep] = []
    resumes = instrument.can_go_on(wish)
    replace_durably(instrument.path / WISH, json.dumps({key: str(value) for key, value in asdict(wish).items()}) + "\n")
    number = int(instrument.models[-1].name) if instrument.models else 0
    rounds = ROUNDS if wish.steps > SHORT_STEPS else 1
    for round_ in range(1, rounds + 1):
        until = -(-wish.steps * round_ // rounds)
        words = (
            "train", "train.toml", "--batch-size", str(wish.batch_size), "--steps", str(until), "--set",
            f"learning_rate={wish.learning_rate:g}", "--early-stop", f"train/total_loss < {wish.loss:g}",
            "--evaluate-every", str(max(1, min(25, wish.steps // 6))), "--out", "trained", "--json",
            "--checkpoint-every", "20", *(("--resume",) if resumes or round_ > 1 else ()),
        )  # fmt: skip
        title = f"training, round {round_} of {rounds}"
        steps.append(ChainStep(words, title, str(instrument.path / "measurements.jsonl")))
        steps += listen_steps(instrument, wish, number + round_)
    return steps


def listen_steps(instrument: WebInstrument, wish: TrainingWish, number: int | None = None) -> list[ChainStep]:
    """The model as it is now, of the training that was wished for, and examples played by it."""
    if number is None:
        number = 1 + (int(instrument.models[-1].name) if instrument.models else 0)
    model = f"models/{number}"
    study = ("--from", "trained", "--batch-size", str(wish.batch_size))
    steps = [ChainStep(("audio", "export", "train.toml", *study, "--out", model), "exporting the model")]
    for split in ("val", "train"):
        out = (f"sounds/{number}-{split}-played.wav", f"sounds/{number}-{split}-recorded.wav")
        words = ("audio", "resynthesise", model, "prepared", "--split", split, "--out", out[0], "--recorded", out[1])
        steps.append(ChainStep(words, "playing examples", may_fail=True))  # a short split has no example
    return steps


def transfer_steps(instrument: WebInstrument, voice: Path, octaves: int, *, own_loudness: bool) -> list[ChainStep]:
    """A recording in the timbre of the instrument."""
    if instrument.model is None:
        raise RefusedError(409, "There is no model yet: train one first.")
    number = 1 + sum(path.name.startswith("transfer-") for path in instrument.sounds)
    words = (
        "audio", "transfer", f"models/{instrument.model.name}", f"voices/{voice.name}", "--out",
        f"sounds/transfer-{number}.wav", "--octaves", str(octaves), *(("--own-loudness",) if own_loudness else ()),
    )  # fmt: skip
    return [ChainStep(words, f"playing {visible(voice.name, 60)}")]


def _losses(file: Path) -> Iterator[tuple[int, float]]:
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


def _number(form: dict[str, str], key: str, default: float, low: float, high: float) -> float:
    text = form.get(key, "").strip()
    try:
        value = float(text) if text else float(default)
    except ValueError:
        raise SpecError(f"{key} is a number.") from None
    if not low <= value <= high:
        raise SpecError(f"{key} lies between {low:g} and {high:g}. Found {value:g}.")
    return value
