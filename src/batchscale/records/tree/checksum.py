"""The checksum of a trial's measurements: set when the trial is recorded, verified by whoever relies on it."""

import hashlib

from batchscale.records.metadata.trial import TrialMetadata
from batchscale.records.rules import Fault


def measurements_checksum(text: bytes) -> str:
    """The SHA-256 of a ``measurements.csv``, in hexadecimal."""
    return hashlib.sha256(text).hexdigest()


def checksum_fault(recorded: str | None, found: str) -> Fault | None:
    """What is wrong if a file has another checksum than recorded; None if nothing, or if none was recorded."""
    if recorded in (None, found):
        return None
    assert recorded is not None
    return Fault(None, "changed-measurements", f"checksum {found[:12]}… where {recorded[:12]}… was recorded")


def recorded_checksum(metadata: TrialMetadata | None) -> str | None:
    """The checksum that a trial's facts have."""
    return None if metadata is None else metadata.measurements_sha256
