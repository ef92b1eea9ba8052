"""What ``metadata.json`` says besides the published keys: which point the trial is, how it ended, what it cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from typing import Any

from batchscale.records.metadata.base import FORMAT_VERSION, OWN_KEY, VERSION_KEY, read_version, upgrade_trial
from batchscale.records.metadata.fields import Fields, without_none

_SHA256_DIGITS = 64
_HEXADECIMAL = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class Timing:
    """Where the time of a trial went in its last job, and all its seconds that are known.

    ``step_time_s`` is that of a steady step of the whole population, ``examples_per_s`` that of all its trials
    together; ``train_s`` are the seconds in steady steps, ``num_steps`` all steps of the job. ``evaluation_s`` is one
    evaluation on average. ``total_s`` is the trial's share of all its jobs.
    """

    compile_s: float | None = None
    warm_up_s: float | None = None
    train_s: float | None = None
    evaluation_s: float | None = None
    num_steps: int | None = None
    step_time_s: float | None = None
    examples_per_s: float | None = None
    total_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The object under ``timing``."""
        return without_none(**vars(self))

    @classmethod
    def of(cls, times: Mapping[str, float]) -> "Timing":
        """The times that an engine reports under these names; others are left out."""
        known = {name: times[name] for name in _TIMES if name in times}
        return cls(**{name: int(value) if name == "num_steps" else float(value) for name, value in known.items()})  # type: ignore[arg-type]

    @classmethod
    def read(cls, found: Fields) -> "Timing":
        """The times that an object has."""
        seconds = {name: found.number(name) for name in _SECONDS}
        steps = found.number("num_steps")  # version 1 wrote it with a point
        return cls(num_steps=None if steps is None else int(steps), **seconds)


_TIMES = tuple(one.name for one in dataclass_fields(Timing))
_SECONDS = tuple(name for name in _TIMES if name != "num_steps")


@dataclass(frozen=True)
class Hardware:
    """What a trial ran on. ``platform`` is cpu, gpu or tpu; ``device_kind`` the processor's or accelerator's name."""

    device_kind: str
    platform: str | None = None
    num_devices: int | None = None
    num_hosts: int | None = None
    host: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The object under ``hardware``."""
        return without_none(**vars(self))

    @classmethod
    def read(cls, found: Fields) -> "Hardware":
        """The hardware that an object describes."""
        return cls(
            device_kind=found.text("device_kind") or "",
            platform=found.text("platform"),
            num_devices=found.whole("num_devices", least=1),
            num_hosts=found.whole("num_hosts", least=1),
            host=found.text("host"),
        )

    def __str__(self) -> str:
        count = f"{self.num_devices} × " if (self.num_devices or 1) > 1 else ""
        hosts = f" on {self.num_hosts} hosts" if (self.num_hosts or 1) > 1 else ""
        return f"{count}{self.device_kind or self.platform or 'unknown'}{hosts}"


@dataclass(frozen=True)
class TrialMetadata:
    """All our facts of a trial; None and empty stand for what is not known.

    ``search`` counts from 1, ``point`` from 0 within it. ``best`` is the best value of the goal's metric, smaller is
    better: its negative where the goal is to be exceeded. ``failure`` says why an INCOMPLETE trial could not be
    trained, ``log_lines`` are the last ones that its process printed. ``measurements_sha256`` is the checksum of the
    committed ``measurements.csv``: the writer sets it. ``other`` has keys of this version that this code does not know.
    """

    seed: int | None = None
    search: int | None = None
    point: int | None = None
    stop_reason: str | None = None
    reached_at: int | None = None
    diverged_at: int | None = None
    best: float | None = None
    failure: str | None = None
    log_lines: tuple[str, ...] = ()
    timing: Timing | None = None
    hardware: Hardware | None = None
    measurements_sha256: str | None = None
    other: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The object under our key in ``metadata.json``."""
        known = without_none(
            format_version=FORMAT_VERSION,
            seed=self.seed,
            search=self.search,
            point=self.point,
            stop_reason=self.stop_reason,
            reached_at=self.reached_at,
            diverged_at=self.diverged_at,
            best=self.best,
            failure=self.failure,
            log_lines=list(self.log_lines) or None,
            timing=self.timing.to_json() if self.timing else None,
            hardware=self.hardware.to_json() if self.hardware else None,
            measurements_sha256=self.measurements_sha256,
        )
        return {**self.other, **known}

    @classmethod
    def from_json(cls, own: object, where: str) -> "TrialMetadata":
        """The facts that stand under our key in the ``metadata.json`` at ``where``, of any version up to ours.

        Raises:
            NewerFormatError: their version is newer.
            MetadataError: one of them is not of its kind.
        """
        version = read_version(own, where)
        assert isinstance(own, Mapping)
        found = Fields(upgrade_trial(own, version), f"{where}: {OWN_KEY}")
        found.whole(VERSION_KEY)
        return cls(
            seed=found.whole("seed"),
            search=found.whole("search", least=1),
            point=found.whole("point"),
            stop_reason=found.text("stop_reason"),
            reached_at=found.whole("reached_at"),
            diverged_at=found.whole("diverged_at"),
            best=found.number("best"),
            failure=found.text("failure"),
            log_lines=_read_lines(found),
            timing=found.part("timing", Timing.read),
            hardware=found.part("hardware", Hardware.read),
            measurements_sha256=_read_checksum(found),
            other=found.rest(),
        )


def _read_lines(found: Fields) -> tuple[str, ...]:
    lines = found.items("log_lines")
    if not all(isinstance(line, str) for line in lines):
        raise found.refuse("log_lines", "is a list of texts")
    return tuple(lines)


def _read_checksum(found: Fields) -> str | None:
    text = found.text("measurements_sha256")
    if text is not None and (len(text) != _SHA256_DIGITS or not _HEXADECIMAL.issuperset(text)):
        raise found.refuse("measurements_sha256", f"has {_SHA256_DIGITS} hexadecimal digits")
    return text
