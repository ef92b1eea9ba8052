"""A study and a trial as the published format describes them: their values, and the text of their JSON files.

Parsing is strict about the published keys and keeps every other key in ``extra``, so that reading and writing loses
nothing. Our own metadata, under the one extra key ``batchscale``, is typed: see ``metadata``.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from batchscale.errors import RecordsError, SpecError, one_line
from batchscale.records.metadata.base import CHECKSUM_KEY, OWN_KEY, is_finite
from batchscale.records.metadata.study import StudyMetadata
from batchscale.records.metadata.trial import TrialMetadata
from batchscale.records.rules import Fault
from batchscale.records.tree.layout import STUDY_FILE, TRIAL_FILE
from batchscale.spec.space import MAX_METAPARAMETERS, SearchSpace
from batchscale.spec.untrusted_text import parse_json
from batchscale.spec.workload_name import WorkloadName

STUDY_KEYS = ("batch_size", "dataset", "early_stopping", "model", "optimizer", "parameter_configs", "train_steps")
TRIAL_KEYS = ("parameters", "status", "steps", "trial_id")
TRIAL_COLUMNS = ("dataset", "model", "optimizer", "batch_size", "trial_id", "status", "steps", "facts", "extra")
MAX_WHOLE = 2**53

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_TRIAL_KEYS = frozenset((*TRIAL_KEYS, OWN_KEY))


class Status(StrEnum):
    """The end of a trial. All three are results."""

    COMPLETE = "COMPLETE"
    INCOMPLETE = "INCOMPLETE"
    INFEASIBLE = "INFEASIBLE"


_STATUSES = {status.value: status for status in Status}


@dataclass(frozen=True)
class StudyRecord:
    """One ``study.json``. ``train_steps`` 0 means that trials had a time budget instead of a step budget."""

    workload: WorkloadName
    batch_size: int
    train_steps: int
    early_stopping: bool
    space: SearchSpace
    metadata: StudyMetadata | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spec_hash(self) -> str | None:
        """The hash of the experiment that the study belongs to, if its metadata has one."""
        return None if self.metadata is None else self.metadata.spec_hash

    def to_json(self) -> dict[str, Any]:
        """Return the object stored in ``study.json``."""
        return {
            "batch_size": self.batch_size,
            "dataset": self.workload.dataset.rpartition("/")[2],
            "early_stopping": self.early_stopping,
            "model": self.workload.model,
            "optimizer": self.workload.optimizer,
            "parameter_configs": self.space.to_json(),
            "train_steps": self.train_steps,
            **({OWN_KEY: self.metadata.to_json()} if self.metadata is not None else {}),
            **self.extra,
        }


@dataclass(frozen=True)
class TrialRecord:
    """One ``metadata.json``."""

    trial_id: int
    status: Status
    steps: int
    parameters: Mapping[str, float]
    metadata: TrialMetadata | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measurements_sha256(self) -> str | None:
        """The recorded checksum of the trial's measurements, if its metadata has one."""
        return None if self.metadata is None else self.metadata.measurements_sha256

    def to_json(self) -> dict[str, Any]:
        """Return the object stored in ``metadata.json``."""
        return {
            "parameters": dict(self.parameters),
            "status": self.status.value,
            "steps": self.steps,
            "trial_id": self.trial_id,
            **({OWN_KEY: self.metadata.to_json()} if self.metadata is not None else {}),
            **self.extra,
        }


def parse_study(text: bytes | str, workload: WorkloadName, where: str) -> StudyRecord:
    """Parse a ``study.json`` of the workload that its folders name; ``where`` is its path for messages."""
    data = _parse_object(text, where)
    _require(data, STUDY_KEYS, where)
    names = (data["dataset"], data["model"], data["optimizer"])
    datasets = (workload.dataset, workload.dataset.rpartition("/")[2])
    if names[0] not in datasets or names[1:] != (workload.model, workload.optimizer):
        raise RecordsError(
            f"{where}: dataset, model and optimizer must agree with the folders. Found {one_line(names)}."
        )
    if not isinstance(data["early_stopping"], bool):
        raise RecordsError(f"{where}: early_stopping is true or false. Found {one_line(repr(data['early_stopping']))}.")
    try:
        space = SearchSpace.from_json(data["parameter_configs"])
    except SpecError as error:
        raise RecordsError(f"{where}: {error}") from None
    study = StudyRecord(
        workload=workload,
        batch_size=_whole(data["batch_size"], "batch_size", where, least=1),
        train_steps=_whole(data["train_steps"], "train_steps", where),
        early_stopping=data["early_stopping"],
        space=space,
        metadata=StudyMetadata.from_json(data[OWN_KEY], where) if OWN_KEY in data else None,
        extra={key: value for key, value in data.items() if key not in (*STUDY_KEYS, OWN_KEY)},
    )
    _require_unchanged(data, where)
    return study


def parse_trial(text: bytes | str, where: str) -> TrialRecord:
    """Parse a ``metadata.json``; ``where`` is its path for messages."""
    data = _parse_object(text, where)
    _require(data, TRIAL_KEYS, where)
    if not isinstance(data["status"], str) or data["status"] not in _STATUSES:
        raise RecordsError(f"{where}: status is one of {', '.join(Status)}. Found {one_line(repr(data['status']))}.")
    parameters = data["parameters"]
    if not isinstance(parameters, dict):
        raise RecordsError(f"{where}: parameters is an object of numbers. Found {one_line(repr(parameters))}.")
    if len(parameters) > MAX_METAPARAMETERS:
        raise RecordsError(f"{where}: a trial has at most {MAX_METAPARAMETERS} parameters. Found {len(parameters):,}.")
    for name, value in parameters.items():
        if not is_finite(value):
            raise RecordsError(f"{where}: parameter '{one_line(name)}' is a finite number. Found {one_line(value)}.")
        if not is_parameter_name(name):
            raise RecordsError(
                f"{where}: a parameter's name is text of its own, not {', '.join(TRIAL_COLUMNS)}. "
                f"Found {one_line(repr(name))}."
            )
    trial = TrialRecord(
        trial_id=_whole(data["trial_id"], "trial_id", where),
        status=_STATUSES[data["status"]],
        steps=_whole(data["steps"], "steps", where),
        parameters=parameters,
        metadata=TrialMetadata.from_json(data[OWN_KEY], where) if OWN_KEY in data else None,
        extra={key: value for key, value in data.items() if key not in _TRIAL_KEYS},
    )
    _require_unchanged(data, where)
    return trial


def json_text(data: Mapping[str, Any], where: str) -> bytes:
    """Return the object as it stands in a file: keys sorted, two blanks a level, a line break at the end, no NaN."""
    return f"{_dump(data, where, indent=2)}\n".encode()


def _dump(data: Mapping[str, Any], where: str, indent: int | None = None) -> str:
    try:
        return json.dumps(data, allow_nan=False, sort_keys=True, indent=indent)
    except (TypeError, ValueError) as error:
        raise RecordsError(
            f"{where}: everything stored is JSON, which has no nan or inf ({one_line(error)})."
        ) from None


def content_checksum(data: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the object of a ``study.json`` or ``metadata.json``, without its own checksum.

    Blanks, line breaks and the order of keys do not count: a tool that only lays the file out anew changes nothing.
    """
    own = {key: value for key, value in data[OWN_KEY].items() if key != CHECKSUM_KEY}
    return hashlib.sha256(_canonical({**data, OWN_KEY: own}).encode()).hexdigest()


def recorded_checksum(data: Mapping[str, Any]) -> object:
    """Return the checksum that a file has of itself; None if it was written without one."""
    own = data.get(OWN_KEY)
    return own.get(CHECKSUM_KEY) if isinstance(own, Mapping) else None


def metadata_fault(data: Mapping[str, Any]) -> Fault | None:
    """Return the fault of an object that differs from its recorded checksum; None if it does not, or has none."""
    recorded = recorded_checksum(data)
    if recorded is None:
        return None
    actual = content_checksum(data)
    if recorded == actual:
        return None
    return Fault(
        None, "changed-metadata", f"checksum {actual[:12]}… where {one_line(str(recorded)[:12])}… was recorded"
    )


def study_text(record: StudyRecord) -> bytes:
    """Return the bytes of ``study.json``; raises RecordsError if our own reader would refuse them."""
    _require_free_keys(record.extra, STUDY_KEYS, STUDY_FILE)
    text = json_text(_with_checksum(record.to_json(), STUDY_FILE), STUDY_FILE)
    parse_study(text, record.workload, STUDY_FILE)
    return text


def trial_text(record: TrialRecord) -> bytes:
    """Return the bytes of ``metadata.json``; raises RecordsError if our own reader would refuse them."""
    _require_free_keys(record.extra, TRIAL_KEYS, TRIAL_FILE)
    text = json_text(_with_checksum(record.to_json(), TRIAL_FILE), TRIAL_FILE)
    parse_trial(text, TRIAL_FILE)
    return text


def is_parameter_name(name: str) -> bool:
    """True if a metaparameter of this name can be a column of the trials frame."""
    return bool(name) and name.isprintable() and name not in TRIAL_COLUMNS


def _with_checksum(data: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the object of a file with its checksum under our own key; without that key it has none."""
    if OWN_KEY not in data:
        return data
    plain = json.loads(_dump(data, where))  # on one line, which takes a third of the time
    return {**plain, OWN_KEY: {**plain[OWN_KEY], CHECKSUM_KEY: content_checksum(plain)}}


def _require_unchanged(data: Mapping[str, Any], where: str) -> None:
    fault = metadata_fault(data)
    if fault is not None:
        raise RecordsError(
            f"{where}: {fault} Put the file back from a copy. If the change is meant, remove its key {CHECKSUM_KEY}."
        )


def _parse_object(text: bytes | str, where: str) -> dict[str, Any]:
    try:
        data = parse_json(text)
    except ValueError as error:
        raise RecordsError(f"{where}: the file is not valid JSON ({one_line(error)}).") from None
    if not isinstance(data, dict):
        raise RecordsError(f"{where}: the file is a JSON object. Found {one_line(type(data).__name__)}.")
    return data


def _require(data: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    missing = [key for key in keys if key not in data]
    if missing:
        raise RecordsError(f"{where}: the published keys must all be there. Missing: {', '.join(missing)}.")


def _whole(value: object, key: str, where: str, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_WHOLE:
        raise RecordsError(f"{where}: {key} is a whole number of at least {least}. Found {one_line(repr(value))}.")
    return value


def _require_free_keys(extra: Mapping[str, object], published: tuple[str, ...], where: str) -> None:
    taken = [key for key in extra if key in (*published, OWN_KEY)]
    if taken:
        raise RecordsError(f"{where}: extra keys stand beside the published ones and our own. Found {one_line(taken)}.")
