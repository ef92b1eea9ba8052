"""The commands behind the buttons of an instrument: prepare, train, listen, transfer."""

import json
from dataclasses import asdict
from pathlib import Path

from batchscale.instruments.web.instruments import SETTINGS, TrainingSettings, WebInstrument
from batchscale.records.durable import replace_durably
from batchscale.web.command_sequence import CommandStep
from batchscale.web.records_folders import visible
from batchscale.web.refusals import RefusedError

ROUNDS = 3  # of training: examples are played after each
SHORT_STEPS = 300  # training so short that rounds are not worth it

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


def prepare_steps(instrument: WebInstrument) -> list[CommandStep]:
    """Return the command that prepares the recordings."""
    (instrument.path / "prepared.json").unlink(missing_ok=True)
    words = ("data", "audio", "recordings", "--out", "prepared", "--json")
    return [CommandStep(words, "preparing the recordings", str(instrument.path / "prepared.json"))]


def train_steps(instrument: WebInstrument, settings: TrainingSettings) -> list[CommandStep]:
    """Return the commands of several rounds of training, each followed by examples to listen to."""
    seconds = [float(value) for value in (instrument.prepared or {}).get("seconds", {}).values()]
    short = min(seconds, default=0.0) < 4.0
    text = EXPERIMENT.format(
        loss=settings.loss, batch_size=settings.batch_size, model=settings.model,
        path=json.dumps(str(instrument.path / "prepared")),
        seconds=0.5 if short else 1.0, spacing=0.25 if short else 0.5, steps=settings.steps,
        every=max(1, min(25, settings.steps // 6)),
    )  # fmt: skip
    replace_durably(instrument.path / "train.toml", text)
    steps: list[CommandStep] = []
    resumes = instrument.can_continue(settings)
    stored = {key: str(value) for key, value in asdict(settings).items()}
    replace_durably(instrument.path / SETTINGS, json.dumps(stored) + "\n")
    number = int(instrument.models[-1].name) if instrument.models else 0
    rounds = ROUNDS if settings.steps > SHORT_STEPS else 1
    for round_ in range(1, rounds + 1):
        until = -(-settings.steps * round_ // rounds)
        words = (
            "train", "train.toml", "--batch-size", str(settings.batch_size), "--steps", str(until), "--set",
            f"learning_rate={settings.learning_rate:g}", "--early-stop", f"train/total_loss < {settings.loss:g}",
            "--evaluate-every", str(max(1, min(25, settings.steps // 6))), "--out", "trained", "--json",
            "--checkpoint-every", "20", "--resume" if resumes or round_ > 1 else "--new-trial",
        )  # fmt: skip
        title = f"training, round {round_} of {rounds}"
        steps.append(CommandStep(words, title, str(instrument.path / "measurements.jsonl")))
        steps += listen_steps(instrument, settings, number + round_)
    return steps


def listen_steps(instrument: WebInstrument, settings: TrainingSettings, number: int | None = None) -> list[CommandStep]:
    """Return the commands that export the current model and play examples with it."""
    if number is None:
        number = 1 + (int(instrument.models[-1].name) if instrument.models else 0)
    model = f"models/{number}"
    study = ("--from", "trained", "--batch-size", str(settings.batch_size))
    steps = [CommandStep(("audio", "export", "train.toml", *study, "--out", model), "exporting the model")]
    for split in ("val", "train"):
        out = (f"sounds/{number}-{split}-played.wav", f"sounds/{number}-{split}-recorded.wav")
        words = ("audio", "resynthesise", model, "prepared", "--split", split, "--out", out[0], "--recorded", out[1])
        steps.append(CommandStep(words, "playing examples", may_fail=True))  # a short split has no example
    return steps


def transfer_steps(instrument: WebInstrument, voice: Path, octaves: int, *, own_loudness: bool) -> list[CommandStep]:
    """Return the command that plays a recording in the timbre of the instrument."""
    if instrument.model is None:
        raise RefusedError(409, "There is no model yet: train one first.")
    number = 1 + sum(path.name.startswith("transfer-") for path in instrument.sounds)
    words = (
        "audio", "transfer", f"models/{instrument.model.name}", f"voices/{voice.name}", "--out",
        f"sounds/transfer-{number}.wav", "--octaves", str(octaves), *(("--own-loudness",) if own_loudness else ()),
    )  # fmt: skip
    return [CommandStep(words, f"playing {visible(voice.name, 60)}")]
