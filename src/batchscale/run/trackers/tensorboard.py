"""Mirror a run to TensorBoard: a folder of event files per trial, written without any library."""

import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from batchscale.records.importers.event_files import masked_checksum
from batchscale.run.trackers.tracker import TrackedTrial, Tracker

_HPARAMS = b"hparams"
_SESSION_STATUS = {"COMPLETE": 1, "INFEASIBLE": 1, "INCOMPLETE": 2}


class TensorBoardTracker(Tracker):
    """The target is a folder: ``tensorboard:logs``, to be shown with ``tensorboard --logdir logs``."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._folder = Path(target).expanduser()
        self._files: dict[str, Path] = {}

    def on_measurement(self, trial: TrackedTrial, step: int, values: Mapping[str, float]) -> None:
        """Append one event with the scalars of a step."""
        scalars = b"".join(
            _message(1, _message(1, name.encode()) + _key(2, 5) + struct.pack("<f", value))
            for name, value in values.items()
        )
        self._append(trial, _event(scalars, step))

    def on_trial_end(self, trial: TrackedTrial, status: str, steps: int) -> None:
        """Append the end of the session as the hparams plug-in shows it."""
        end = _message(
            4, _key(1, 0) + _varint(_SESSION_STATUS.get(status, 0)) + _key(2, 1) + struct.pack("<d", time.time())
        )
        self._append(trial, _event(_hparams_value(b"_hparams_/session_end_info", end), steps))
        self._files.pop(trial.name, None)

    def _append(self, trial: TrackedTrial, event: bytes) -> None:
        """Append an event in one write; the file is closed in between, because a run has many trials."""
        data = event
        if trial.name not in self._files:
            folder = self._folder / trial.run / trial.name
            folder.mkdir(parents=True, exist_ok=True)
            stamp = f"{time.time():.6f}".replace(".", "")
            self._files[trial.name] = folder / f"events.out.tfevents.{stamp}.batchscale.{os.getpid()}"
            data = _first_event() + _event(_session_start(trial), 0) + event
        with self._files[trial.name].open("ab") as file:
            file.write(data)


def _session_start(trial: TrackedTrial) -> bytes:
    entries = b""
    for name, value in trial.config.items():
        number = _message(3, value.encode()) if isinstance(value, str) else _key(2, 1) + struct.pack("<d", float(value))
        entries += _message(1, _message(1, name.encode()) + _message(2, number))
    return _hparams_value(b"_hparams_/session_start_info", _message(3, entries))


def _hparams_value(tag: bytes, content: bytes) -> bytes:
    plugin = _message(1, _HPARAMS) + _message(2, content)
    return _message(1, _message(1, tag) + _message(9, _message(1, plugin)))


def _first_event() -> bytes:
    return _record(_key(1, 1) + struct.pack("<d", time.time()) + _message(3, b"brain.Event:2"))


def _event(summary: bytes, step: int) -> bytes:
    return _record(_key(1, 1) + struct.pack("<d", time.time()) + _key(2, 0) + _varint(step) + _message(5, summary))


def _record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    checksums = [struct.pack("<I", masked_checksum(part)) for part in (head, data)]
    return head + checksums[0] + data + checksums[1]


def _message(number: int, data: bytes) -> bytes:
    return _key(number, 2) + _varint(len(data)) + data


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
