"""Predictions on disk: ``predictions.json`` in the folder of what they trained, so that later runs read them.

The file belongs to one experiment, as its records do. A method that is asked again replaces its own predictions.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from batchscale.errors import RecordsError, one_line
from batchscale.prediction.prediction import Prediction
from batchscale.records.output_file import write_output
from batchscale.spec.experiment import Experiment
from batchscale.spec.untrusted_text import parse_json
from batchscale.study.identity import spec_hash

SUFFIX = "-prediction"
"""The ending of the folder's name, after that of the records or of the experiment file."""
FILE = "predictions.json"
VERSION = 1
MAX_BYTES = 5_000_000


def write_predictions(folder: Path, experiment: Experiment, predictions: Sequence[Prediction]) -> None:
    """Store the predictions of an experiment beside what was trained for them.

    Raises:
        RecordsError: the stored file cannot be read.
        SpecError: the file cannot be written.
    """
    new = {(item.method, item.quantity): item for item in predictions}
    old = {(item.method, item.quantity): item for item in read_predictions(folder, experiment)}
    data = {
        "version": VERSION,
        "spec_hash": _identity(experiment),
        "workload": str(experiment.workload.name),
        "goal": str(experiment.goal),
        "predictions": [item.to_json() for item in (old | new).values()],
    }
    write_output(folder / FILE, json.dumps(data, indent=2, allow_nan=False) + "\n")


def read_predictions(folder: Path, experiment: Experiment) -> list[Prediction]:
    """Return the predictions that a folder has of an experiment; none if there is no file, or it is of another one.

    Raises:
        RecordsError: the file is no file of predictions.
    """
    path = folder / FILE
    try:
        if not path.is_file():
            return []
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        data = parse_json(path.read_bytes())
        if data["version"] > VERSION:
            raise ValueError(f"version {data['version']} is of a later batchscale")
        predictions = [Prediction.from_json(item) for item in data["predictions"]]
        return predictions if data["spec_hash"] == _identity(experiment) else []
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RecordsError(
            f"{one_line(path, 300)}: the file must have the predictions that 'batchscale predict' stored. Found "
            f"something else ({one_line(error, 200)}); remove it, and predict again."
        ) from None


def _identity(experiment: Experiment) -> str:
    """Return the hash of an experiment, whether or not it records gradient noise too: that changes no answer."""
    return spec_hash(replace(experiment, evaluation=replace(experiment.evaluation, gradient_noise=False)))
