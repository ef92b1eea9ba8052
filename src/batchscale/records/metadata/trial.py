"""The metadata that batchscale adds to ``metadata.json``: the point that a trial is, its end, its cost.

A new field is one line in one of these classes. Its column in the trials frame follows from its type.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from batchscale.records.metadata.base import (
    Number,
    Positive,
    Text,
    Whole,
    is_finite,
    metadata_json,
    parse_metadata,
    read_version,
)

_OLD_TIMING = {"seconds": "total_s", "steps": "num_steps"}

Steps = Annotated[Whole, BeforeValidator(lambda value: int(value) if is_finite(value) else value)]
"""A number of steps; version 1 wrote it with a point."""

Lines = Annotated[tuple[Text, ...], Field(description="is a list of texts")]
Sha256 = Annotated[str, Field(strict=True, pattern="^[0-9a-f]{64}$", description="has 64 hexadecimal digits")]


@dataclass(frozen=True)
class Timing:
    """The time that a trial spent in its last job, by kind of work, and all its seconds.

    ``step_time_s`` is that of a steady step of the whole population, ``examples_per_s`` that of all its trials
    together; ``train_s`` are the seconds in steady steps, ``num_steps`` all steps of the job. ``evaluation_s`` is one
    evaluation on average. ``total_s`` is the trial's share of all its jobs.
    """

    compile_s: Number | None = None
    warm_up_s: Number | None = None
    train_s: Number | None = None
    evaluation_s: Number | None = None
    num_steps: Steps | None = None
    step_time_s: Number | None = None
    examples_per_s: Number | None = None
    total_s: Number | None = None

    @classmethod
    def of(cls, times: Mapping[str, float]) -> "Timing":
        """Return the times that an engine reports under these names; others are ignored."""
        names = [field.name for field in dataclass_fields(cls) if field.name in times]
        return cls(**{name: int(times[name]) if name == "num_steps" else float(times[name]) for name in names})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Hardware:
    """The machine of a trial. ``platform`` is cpu, gpu or tpu, ``device_kind`` the name of the processor."""

    device_kind: Text = ""
    platform: Text | None = None
    num_devices: Positive | None = None
    num_hosts: Positive | None = None
    host: Text | None = None

    def __str__(self) -> str:
        count = f"{self.num_devices} × " if (self.num_devices or 1) > 1 else ""
        hosts = f" on {self.num_hosts} hosts" if (self.num_hosts or 1) > 1 else ""
        return f"{count}{self.device_kind or self.platform or 'unknown'}{hosts}"


@dataclass(frozen=True)
class TrialMetadata:
    """All our metadata of a trial; None and empty stand for unknown values.

    ``search`` counts from 1, ``point`` from 0 within it. ``confirms`` is the trial whose metaparameters it has with a
    new seed; such a trial is no part of a search. ``best`` is the best value of the goal's metric, smaller is
    better: its negative where the goal is to be exceeded. ``failure`` is the reason why an INCOMPLETE trial could not
    be trained, ``log_lines`` are the last lines that its process printed. ``measurements_sha256`` is the checksum of
    the committed ``measurements.csv``, set by the writer. ``other`` has keys of this version that have no field here.
    """

    seed: Whole | None = None
    search: Positive | None = None
    point: Whole | None = None
    confirms: Positive | None = None
    stop_reason: Text | None = None
    reached_at: Whole | None = None
    diverged_at: Whole | None = None
    best: Number | None = None
    failure: Text | None = None
    log_lines: Lines = ()
    timing: Timing | None = None
    hardware: Hardware | None = None
    measurements_sha256: Sha256 | None = None
    other: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the object under our key in ``metadata.json``."""
        return metadata_json(self)

    @classmethod
    def from_json(cls, data: object, where: str) -> "TrialMetadata":
        """Return the metadata under our key in the ``metadata.json`` at ``where``, of any version up to ours.

        Raises:
            NewerFormatError: its version is newer.
            MetadataError: a value is not of its kind.
        """
        version = read_version(data, where)
        assert isinstance(data, Mapping)
        return parse_metadata(cls, data if version > 1 else _upgrade(data), where)


def _upgrade(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of version 1 as today's version has it."""
    metadata = dict(data)
    if isinstance(metadata.get("hardware"), str):
        metadata["hardware"] = {"device_kind": metadata["hardware"]} if metadata["hardware"] else None
    timing = metadata.get("timing")
    if isinstance(timing, Mapping):
        metadata["timing"] = {_OLD_TIMING.get(name, name): value for name, value in timing.items()}
    return metadata
