"""The faults of one ``study.json`` or ``metadata.json``, each with its line."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from batchscale.errors import SpecError, one_line
from batchscale.records.metadata.base import OWN_KEY, VERSION_KEY, MetadataError, NewerFormatError, is_finite
from batchscale.records.metadata.study import StudyMetadata
from batchscale.records.metadata.trial import TrialMetadata
from batchscale.records.model import (
    MAX_WHOLE,
    STUDY_KEYS,
    TRIAL_KEYS,
    Status,
    is_parameter_name,
    metadata_fault,
    recorded_checksum,
)
from batchscale.records.rules import Fault
from batchscale.records.tree.measurements import BYTE_ORDER_MARK
from batchscale.spec.space import MAX_METAPARAMETERS, ParameterConfig, ParameterType
from batchscale.spec.untrusted_text import parse_json
from batchscale.spec.workload_name import WorkloadName

ROUNDING = 1e-12  # a value drawn at the end of a log range may miss it by a rounding of the logarithm

T = TypeVar("T")

Configs = Mapping[str, ParameterConfig]


@dataclass(frozen=True)
class CheckedStudy:
    """The sound values of a ``study.json`` that the check of its trials needs; ``covered``: it has a checksum."""

    train_steps: int
    early_stopping: bool
    configs: Configs
    metadata: StudyMetadata | None = None
    covered: bool = True

    def space_of(self, trial: TrialMetadata | None) -> Configs:
        """Return the space that a trial was drawn from: that of its own search if it names one, else the study's."""
        number = trial.search if trial is not None else None
        if self.metadata is not None and number is not None and number <= len(self.metadata.searches):
            return {config.name: config for config in self.metadata.searches[number - 1].space}
        return self.configs


@dataclass(frozen=True)
class CheckedTrial:
    """The sound values of a ``metadata.json`` that the check of its measurements needs; ``covered``: a checksum."""

    status: Status | None = None
    metadata: TrialMetadata | None = None
    covered: bool = True

    @property
    def measurements_sha256(self) -> str | None:
        """The recorded checksum of the measurements, if there is one."""
        return None if self.metadata is None else self.metadata.measurements_sha256


class _Text:
    """A JSON file's text: its object, and the lines of its keys."""

    def __init__(self, text: bytes) -> None:
        self.faults: list[Fault] = []
        self.data: dict[str, Any] = {}
        self.lines: list[str] = []
        if text.startswith(BYTE_ORDER_MARK):
            self.faults.append(Fault(1, "byte-order-mark", "a byte order mark"))
        try:
            decoded = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self.faults.append(Fault(text.count(b"\n", 0, error.start) + 1, "not-utf8", one_line(error)))
            return
        self.lines = decoded.split("\n")
        self._parse(decoded)

    def _parse(self, decoded: str) -> None:
        try:
            data = parse_json(decoded, parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            self.faults.append(Fault(error.lineno, "bad-json", one_line(error.msg)))
        except ValueError as error:
            self.faults.append(Fault(1, "bad-json", one_line(error)))
        else:
            if isinstance(data, dict):
                self.data = data
            else:
                self.faults.append(Fault(1, "bad-json", f"a JSON {type(data).__name__}"))

    def line_of(self, key: str) -> int | None:
        """Return the first line with the key."""
        pattern = re.compile(re.escape(json.dumps(key)) + r"\s*:")
        return next((number for number, line in enumerate(self.lines, 1) if pattern.search(line)), None)

    def fault(self, key: str, rule: str, value: object) -> Fault:
        return Fault(self.line_of(key), rule, f"{one_line(key, 60)} {one_line(repr(value), 80)}")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def check_study_text(
    text: bytes, workload: WorkloadName | None, batch_size: int | None
) -> tuple[CheckedStudy | None, list[Fault]]:
    """Return the sound part of a ``study.json`` in the folders of this workload and batch size, and all its faults."""
    parsed = _Text(text)
    data, faults = parsed.data, parsed.faults
    if not data and faults:
        return None, faults
    faults += [Fault(1, "missing-key", f"no {key}") for key in STUDY_KEYS if key not in data]
    if workload is not None:
        faults += _workload_faults(parsed, workload)
    for key, least in (("batch_size", 1), ("train_steps", 0)):
        if key in data and not _is_whole(data[key], least):
            faults.append(parsed.fault(key, "bad-value", data[key]))
    if _is_whole(data.get("batch_size"), 1) and batch_size not in (None, data["batch_size"]):
        faults.append(parsed.fault("batch_size", "batch-size-disagrees", data["batch_size"]))
    if not isinstance(data.get("early_stopping", False), bool):
        faults.append(parsed.fault("early_stopping", "bad-value", data["early_stopping"]))
    configs = _configs(parsed, data.get("parameter_configs", {}), faults)
    study = CheckedStudy(
        train_steps=data["train_steps"] if _is_whole(data.get("train_steps"), 0) else 0,
        early_stopping=data.get("early_stopping", False) is not False,
        configs=configs,
        metadata=_metadata(parsed, StudyMetadata.from_json),
        covered=recorded_checksum(data) is not None,
    )
    return study, faults


def _workload_faults(parsed: _Text, workload: WorkloadName) -> Iterator[Fault]:
    allowed = {
        "dataset": (workload.dataset, workload.dataset.rpartition("/")[2]),
        "model": (workload.model,),
        "optimizer": (workload.optimizer,),
    }
    for key, values in allowed.items():
        if key in parsed.data and parsed.data[key] not in values:
            yield parsed.fault(key, "workload-disagrees", parsed.data[key])


def _configs(parsed: _Text, configs: object, faults: list[Fault]) -> Configs:
    if not isinstance(configs, dict):
        faults.append(parsed.fault("parameter_configs", "bad-space", configs))
        return {}
    sound = {}
    for name, config in configs.items():
        try:
            sound[name] = ParameterConfig.from_json(name, config)
        except SpecError as error:
            faults.append(Fault(parsed.line_of(name), "bad-space", one_line(error, 300)))
    return sound


def _metadata(parsed: _Text, read: Callable[[object, str], T]) -> T | None:
    """Return our own metadata, or None and add a fault; a file that differs from its checksum is a fault too."""
    if OWN_KEY not in parsed.data:
        return None
    try:
        metadata = read(parsed.data[OWN_KEY], "")
    except NewerFormatError:
        version = parsed.data[OWN_KEY][VERSION_KEY]
        parsed.faults.append(Fault(parsed.line_of(VERSION_KEY), "newer-format", f"version {version}"))
        return None  # with rules of its own for the checksum
    except MetadataError as error:
        parsed.faults.append(Fault(parsed.line_of(error.key), "bad-facts", one_line(error, 300).removeprefix(": ")))
        metadata = None
    changed = metadata_fault(parsed.data)
    if changed is not None:
        parsed.faults.append(changed)
    return metadata


def check_trial_text(text: bytes, trial_id: int, study: CheckedStudy | None) -> tuple[CheckedTrial, list[Fault]]:
    """Return the sound part of a ``metadata.json``, and all its faults; ``study`` None checks the file alone."""
    parsed = _Text(text)
    data, faults = parsed.data, parsed.faults
    if not data and faults:
        return CheckedTrial(), faults
    metadata = _metadata(parsed, TrialMetadata.from_json)
    faults += [Fault(1, "missing-key", f"no {key}") for key in TRIAL_KEYS if key not in data]
    status = Status(data["status"]) if data.get("status") in list(Status) else None
    if "status" in data and status is None:
        faults.append(parsed.fault("status", "unknown-status", data["status"]))
    for key in ("steps", "trial_id"):
        if key in data and not _is_whole(data[key], 0):
            faults.append(parsed.fault(key, "bad-value", data[key]))
    if _is_whole(data.get("trial_id"), 0) and data["trial_id"] != trial_id:
        faults.append(parsed.fault("trial_id", "trial-id-disagrees", data["trial_id"]))
    parameters = data.get("parameters", {})
    if isinstance(parameters, dict) and len(parameters) > MAX_METAPARAMETERS:
        faults.append(Fault(parsed.line_of("parameters"), "too-many-parameters", f"{len(parameters):,}"))
    elif isinstance(parameters, dict):
        space = None if study is None else study.space_of(metadata)
        faults += _parameter_faults(parsed, parameters, space)
    else:
        faults.append(parsed.fault("parameters", "bad-value", parameters))
    if study is not None and status is Status.COMPLETE and not study.early_stopping:
        steps = data.get("steps")
        if isinstance(steps, int) and _is_whole(steps, 0) and steps < study.train_steps:
            value = f"COMPLETE after {steps} of {study.train_steps} steps"
            faults.append(Fault(parsed.line_of("steps"), "too-few-steps", value))
    return CheckedTrial(status, metadata, covered=recorded_checksum(data) is not None), faults


def _parameter_faults(parsed: _Text, parameters: dict[str, Any], space: Configs | None) -> Iterator[Fault]:
    for name, value in parameters.items():
        if not is_finite(value) or not is_parameter_name(name):
            yield parsed.fault(name, "bad-parameter", value)
        elif space is not None and name in space and not _contains(space[name], float(value)):
            yield parsed.fault(name, "outside-space", value)
    for name in sorted(set(space or ()) - set(parameters)):
        yield Fault(parsed.line_of("parameters"), "missing-parameter", f"no {one_line(name, 60)}")


def _contains(config: ParameterConfig, value: float) -> bool:
    ends = config.feasible_points or (config.min_value, config.max_value)
    near = any(math.isclose(value, end, rel_tol=ROUNDING) for end in ends)
    return config.contains(value) or (near and config.type is not ParameterType.INTEGER)


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MAX_WHOLE
