"""An instrument: a trained model of sound as one portable folder, and its export from records. Imports no jax.

``instrument.json`` has the model's name, its options and a description of its training; ``parameters.npz`` has plain
arrays, which are read without pickle and verified by their checksum. Nothing in the folder is ever run.
"""

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from batchscale.errors import DataError, RunError, SpecError, one_line
from batchscale.instruments.sound.prepared import SoundStatistics, read_prepared
from batchscale.instruments.task import SOUND
from batchscale.records.durable import replace_durably, storing
from batchscale.records.tree.layout import StudyPaths
from batchscale.spec.experiment import Options, WorkloadSpec
from batchscale.spec.untrusted_text import parse_json
from batchscale.workloads.registry import find_parts

INSTRUMENT_VERSION = 1
DESCRIPTION, PARAMETERS = "instrument.json", "parameters.npz"
MAX_BYTES = 2**31


@dataclass(frozen=True)
class Instrument:
    """A trained model: its parameters (a tree of arrays) and everything needed to play it.

    ``trained`` describes the training for people; nothing depends on it.
    """

    model: str
    model_options: Options
    mfccs: int
    statistics: SoundStatistics
    parameters: Mapping[str, Any]
    trained: Mapping[str, Any] = field(default_factory=dict)


def write_instrument(folder: Path, instrument: Instrument) -> None:
    """Write the folder; the description comes last, so that a folder that has it is complete.

    Raises:
        DataError: The folder is not empty.
        StorageError: The disk cannot be written.
    """
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"An instrument must be written to a new folder. {one_line(folder, 300)} is not empty.")
    buffer = io.BytesIO()
    np.savez(buffer, **flatten(instrument.parameters))  # type: ignore[arg-type]  # names of arrays are free
    content = buffer.getvalue()
    description = {name: value for name, value in asdict(instrument).items() if name != "parameters"}
    description["parameters_sha256"] = hashlib.sha256(content).hexdigest()
    with storing("writing an instrument", folder):
        folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"version": INSTRUMENT_VERSION, **description}, indent=1) + "\n"
    replace_durably(folder / PARAMETERS, content)
    replace_durably(folder / DESCRIPTION, text)


def read_instrument(folder: Path) -> Instrument:
    """Read the instrument in a folder.

    Raises:
        DataError: The folder is not an instrument, is damaged, or has another version.
    """
    path = folder / DESCRIPTION
    try:
        data = parse_json(path.read_text(encoding="utf-8"))
        if data["version"] != INSTRUMENT_VERSION:
            raise DataError(
                f"{one_line(path, 300)} is of version {one_line(data['version'])}, not {INSTRUMENT_VERSION}."
            )
        parameters = _read_parameters(folder / PARAMETERS, str(data["parameters_sha256"]))
        return Instrument(
            str(data["model"]),
            {key: tuple(value) if isinstance(value, list) else value for key, value in data["model_options"].items()},
            int(data["mfccs"]),
            SoundStatistics.from_json(data["statistics"]),
            parameters,
            dict(data["trained"]),
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


def export_instrument(
    spec: WorkloadSpec, records: Path, out: Path, batch_size: int | None = None, trial_id: int | None = None
) -> Instrument:
    """Write the result of ``batchscale train --out RECORDS`` as an instrument to the folder ``out``.

    Args:
        spec: The workload that was trained, as in its experiment file.
        records: The records tree, with its checkpoints.
        out: A new folder.
        batch_size: The study; by default the only one of the workload.
        trial_id: The trial; by default the last one.

    Raises:
        SpecError: The workload is not one of sound.
        RunError: There are no checkpoints, or those of several batch sizes.
        DataError: The prepared recordings are missing, or ``out`` is not empty.
    """
    from batchscale.training.state_store import read_trained

    task = find_parts(spec).dataset.task
    if task is not SOUND:
        raise SpecError(f"An instrument comes of a workload of sound. Found {spec.name}, whose task is '{task}'.")
    size = _only_batch_size(spec, records) if batch_size is None else batch_size
    trained = read_trained(StudyPaths.of(records, spec.name, size).checkpoints, trial_id)
    options = spec.dataset_options
    mfccs = options.get("mfccs", 0)
    instrument = Instrument(
        model=spec.name.model,
        model_options=dict(spec.model_options),
        mfccs=mfccs if isinstance(mfccs, int) else 0,
        statistics=read_prepared(Path(str(options["path"])).expanduser()).statistics,
        parameters=trained.parameters,
        trained={"workload": str(spec.name), "batch_size": size, "trial": trained.trial_id, "steps": trained.step},
    )
    write_instrument(out, instrument)
    return instrument


def _only_batch_size(spec: WorkloadSpec, records: Path) -> int:
    folder = records / spec.name.dataset / spec.name.model / spec.name.optimizer
    sizes = sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else []
    if len(sizes) != 1:
        raise RunError(
            f"{one_line(folder, 300)} must hold one batch size, or --batch-size must name one. Found {sizes or 'none'}."
        )
    return sizes[0]


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """Flatten a tree of arrays into one level: ``{"a": {"b": x}}`` is ``{"a/b": x}``."""
    flat: dict[str, np.ndarray] = {}
    for key, value in tree.items():
        flat |= (
            flatten(value, f"{prefix}{key}/") if isinstance(value, Mapping) else {f"{prefix}{key}": np.asarray(value)}
        )
    return flat


def unflatten(flat: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Rebuild the tree that `flatten` flattened."""
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
        raise DataError(f"{one_line(path, 300)} must have at most {MAX_BYTES:,} bytes. Found {size:,}.")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DataError(f"{one_line(path, 300)} must have the checksum in {DESCRIPTION}. Export it again.")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return unflatten({name: arrays[name] for name in arrays.files})
