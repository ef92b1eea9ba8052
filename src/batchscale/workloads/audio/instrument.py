"""An instrument: a trained model of sound as one folder that can be taken anywhere. Imports no jax.

``instrument.json`` has the model's name, options and what it was trained on; ``parameters.npz`` plain arrays, which are
read without pickle and checked by their checksum. Nothing in the folder is ever run.
"""

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from batchscale.errors import DataError, one_line
from batchscale.records.durable import replace_durably, storing
from batchscale.spec.experiment import Options
from batchscale.workloads.audio.prepared import SoundStatistics

INSTRUMENT_VERSION = 1
DESCRIPTION, PARAMETERS = "instrument.json", "parameters.npz"
MAX_BYTES = 2**31


@dataclass(frozen=True)
class Instrument:
    """A trained model: its parameters (a tree of arrays) and all that playing it takes.

    ``trained`` says how it came about, for people; nothing depends on it.
    """

    model: str
    model_options: Options
    mfccs: int
    statistics: SoundStatistics
    parameters: Mapping[str, Any]
    trained: Mapping[str, Any] = field(default_factory=dict)


def write_instrument(folder: Path, instrument: Instrument) -> None:
    """Writes the folder; the description comes last, so that a folder that has it is whole.

    Raises:
        DataError: There is something in the folder already.
        StorageError: The disk refuses.
    """
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"An instrument is written to a new folder. {one_line(folder, 300)} has something in it.")
    held = io.BytesIO()
    np.savez(held, **flatten(instrument.parameters))  # type: ignore[arg-type]  # names of arrays are free
    content = held.getvalue()
    said = {name: value for name, value in asdict(instrument).items() if name != "parameters"}
    said["parameters_sha256"] = hashlib.sha256(content).hexdigest()
    with storing("writing an instrument", folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PARAMETERS).write_bytes(content)
    replace_durably(folder / DESCRIPTION, json.dumps({"version": INSTRUMENT_VERSION, **said}, indent=1) + "\n")


def read_instrument(folder: Path) -> Instrument:
    """The instrument in a folder.

    Raises:
        DataError: It is none, or damaged, or of another version.
    """
    path = folder / DESCRIPTION
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        if said["version"] != INSTRUMENT_VERSION:
            raise DataError(
                f"{one_line(path, 300)} is of version {one_line(said['version'])}, not {INSTRUMENT_VERSION}."
            )
        parameters = _read_parameters(folder / PARAMETERS, str(said["parameters_sha256"]))
        statistics = said["statistics"]
        return Instrument(
            str(said["model"]),
            {key: tuple(value) if isinstance(value, list) else value for key, value in said["model_options"].items()},
            int(said["mfccs"]),
            SoundStatistics(
                tuple(map(float, statistics["loudness_db"])),
                tuple(map(float, statistics["note"])),
                float(statistics["voiced_share"]),
            ),
            parameters,
            dict(said["trained"]),
        )
    except FileNotFoundError as error:
        raise DataError(
            f"{one_line(folder, 300)} must be the folder of an instrument, with {DESCRIPTION} and {PARAMETERS}. "
            "`batchscale audio export` makes one."
        ) from error
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{one_line(path, 300)} is damaged: {one_line(error)}. Export it again.") from error


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """A tree of arrays as one level: ``{"a": {"b": x}}`` is ``{"a/b": x}``."""
    flat: dict[str, np.ndarray] = {}
    for key, value in tree.items():
        flat |= (
            flatten(value, f"{prefix}{key}/") if isinstance(value, Mapping) else {f"{prefix}{key}": np.asarray(value)}
        )
    return flat


def unflatten(flat: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The tree that `flatten` took apart."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *folders, last = name.split("/")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = value
    return tree


def _read_parameters(path: Path, sha256: str) -> dict[str, Any]:
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise DataError(f"{one_line(path, 300)} has at most {MAX_BYTES:,} bytes. Found {size:,}.")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DataError(f"{one_line(path, 300)} must have the checksum that {DESCRIPTION} says. Found another.")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return unflatten({name: arrays[name] for name in arrays.files})
