"""The bytes of the three files of the layout, as we write them. What our own reader would not take is refused."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from batchscale.errors import RecordsError, one_line
from batchscale.records.metadata.base import OWN_KEY
from batchscale.records.model import STUDY_KEYS, TRIAL_KEYS, StudyRecord, TrialRecord, parse_study, parse_trial
from batchscale.records.tree.layout import STUDY_FILE, TRIAL_FILE
from batchscale.records.tree.measurements import Measurement, format_header, format_row


def json_text(data: Mapping[str, Any], where: str) -> bytes:
    """The object as it stands in a file: keys sorted, two blanks a level, a line break at the end, no NaN."""
    try:
        text = json.dumps(data, allow_nan=False, sort_keys=True, indent=2)
    except (TypeError, ValueError) as error:
        raise RecordsError(
            f"{where}: everything stored is JSON, which has no nan or inf ({one_line(error)})."
        ) from None
    return f"{text}\n".encode()


def study_text(record: StudyRecord) -> bytes:
    """The bytes of ``study.json``; what our own reader would not take is refused."""
    _require_free_keys(record.extra, STUDY_KEYS, STUDY_FILE)
    text = json_text(record.to_json(), STUDY_FILE)
    parse_study(text, record.workload, STUDY_FILE)
    return text


def trial_text(record: TrialRecord) -> bytes:
    """The bytes of ``metadata.json``; what our own reader would not take is refused."""
    _require_free_keys(record.extra, TRIAL_KEYS, TRIAL_FILE)
    text = json_text(record.to_json(), TRIAL_FILE)
    parse_trial(text, TRIAL_FILE)
    return text


def csv_text(measurements: Iterable[Measurement]) -> bytes:
    """The bytes of ``measurements.csv``; the columns are the metrics of the first measurement."""
    rows = list(measurements)
    metrics = list(rows[0].values) if rows else []
    return "".join(
        f"{line}\n" for line in (format_header(metrics), *(format_row(row, metrics) for row in rows))
    ).encode()


def _require_free_keys(extra: Mapping[str, object], published: tuple[str, ...], where: str) -> None:
    taken = [key for key in extra if key in (*published, OWN_KEY)]
    if taken:
        raise RecordsError(f"{where}: extra keys stand beside the published ones and our own. Found {one_line(taken)}.")
