"""Runs: driver processes that are started here, outlive the server, and are signalled only when proven ours.

Proof is that the folder's lock is held, that its file names the process we started, and that this process began at the
moment that was written down: a process number alone may long be another's. What was started is on disk before it is
started, and who it is by its own hand (``launch``): a server may be killed at any moment, and the next one knows.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import RunError, StudyLockedError
from batchscale.log_tail import read_tail
from batchscale.records.durable import replace_durably
from batchscale.records.tree.layout import RunPaths
from batchscale.run.snapshot import is_running
from batchscale.web.claims import Claim, note, read_claimed
from batchscale.web.records_folders import make_records_folder
from batchscale.web.refusals import RefusedError
from batchscale.web.settings import WebSettings

LOG_BYTES = 8000


@dataclass(frozen=True)
class StartedRun:
    """One run that was started here: the folder, its experiment file, and who it is."""

    path: str
    file: str
    is_own_file: bool
    claim: Claim


class WebRuns:
    """The runs of one server. Thread-safe; what it knows is on disk."""

    def __init__(self, settings: WebSettings) -> None:
        self._settings = settings
        self._folder = settings.state / "runs"
        self._turn = threading.Lock()  # one start at a time: two would both find room
        self._children: dict[Path, subprocess.Popen[bytes]] = {}

    def find(self, path: Path) -> StartedRun | None:
        """The latest run that was started here in a folder."""
        return _read(self._note(path))

    def is_ours(self, path: Path) -> bool:
        """Whether the process that holds the folder is the one we started."""
        return self._prove(path) is not None

    def is_starting(self, path: Path) -> bool:
        """Whether our process lives and does not hold the folder yet."""
        started = self.find(path)
        return started is not None and started.claim.is_alive and not is_running(path)

    @property
    def count(self) -> int:
        """How many of our runs are alive."""
        every = [_read(file) for file in self._folder.glob("*.json")]
        alive = sum(started is not None and started.claim.is_alive for started in every)
        for child in list(self._children.values()):
            child.poll()  # what has ended is collected: after looking, so that none is left that was seen to end
        return alive

    def start_text(self, path: Path, text: str) -> None:
        """Start or continue the experiment of a TOML text in a folder; the text has been checked."""
        with self._turn:
            self._require_room(path)
            folder = make_records_folder(path, path.parent)
            number = sum(1 for _ in self._folder.glob(f"{folder.id}-*.toml"))
            file = self._folder / f"{folder.id}-{number}.toml"
            replace_durably(file, text)
            self._start(path, file, is_own_file=False)

    def start_file(self, path: Path, file: Path) -> None:
        """Start or continue an experiment file of the folder that the server was started with."""
        with self._turn:
            self._require_room(path)
            self._start(path, file, is_own_file=True)

    def stop(self, path: Path) -> None:
        """Ask the run to stop, as Ctrl-C does; nothing is lost.

        Raises:
            RefusedError: nothing runs there, or a process that is not proven ours.
        """
        if not is_running(path):
            raise RefusedError(409, "There is no run to stop here: nothing holds the folder.")
        number = self._prove(path)
        if number is None:
            raise RefusedError(
                409, "This run was not started here, so it is not signalled from here. Stop it where it was."
            )
        try:
            handle = os.pidfd_open(number)
        except OSError:
            raise RefusedError(409, "The run has just ended.") from None
        try:
            if self._prove(path) is None:  # the handle is of whoever has the number now: look again before using it
                raise RefusedError(409, "The run has just ended.")
            signal.pidfd_send_signal(handle, signal.SIGINT)
        finally:
            os.close(handle)

    def text(self, path: Path) -> str | None:
        """The experiment file of the latest run started here."""
        started = self.find(path)
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return Path(started.file).read_text(encoding="utf-8") if started else None
        return None

    def last_words(self, path: Path) -> str:
        """The end of what the latest run printed, once it has ended."""
        started = self.find(path)
        if started is None or started.claim.is_alive:
            return ""
        return read_tail(self._log(path), LOG_BYTES)

    def _require_room(self, path: Path) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if is_running(path) or self.is_starting(path):
            raise StudyLockedError(
                f"{path.name}: one run writes a folder at a time, and one is at it. Wait for it or stop it."
            )
        if self.count >= self._settings.limits.runs:
            raise RefusedError(
                429, f"At most {self._settings.limits.runs} runs go on at once (--max-runs). Wait or stop one."
            )

    def _start(self, path: Path, file: Path, *, is_own_file: bool) -> None:
        note_file = self._note(path)
        words = ["run", str(file), "--out", str(path)]
        if self._settings.workers is not None:
            words += ["--workers", str(self._settings.workers)]
        try:
            RunPaths(path).working.mkdir(parents=True, exist_ok=True)  # the folder is listed from now on
            note(note_file, {"path": str(path), "file": str(file), "is_own_file": is_own_file})
            with self._log(path).open("wb") as log:
                self._children[path] = subprocess.Popen(
                    [sys.executable, "-m", "batchscale.web.launch", str(note_file), *words], stdin=subprocess.DEVNULL,
                    stdout=log, stderr=subprocess.STDOUT, start_new_session=True, cwd=path.parent,
                )  # fmt: skip
        except OSError as error:
            raise RunError(f"The run could not be started: {error}.") from None

    def _note(self, path: Path) -> Path:
        return self._folder / f"{make_records_folder(path, path.parent).id}.json"

    def _log(self, path: Path) -> Path:
        return self._folder / f"{make_records_folder(path, path.parent).id}.log"

    def _prove(self, path: Path) -> int | None:
        """The number of the process that holds the folder, if it is the one we started."""
        started = self.find(path)
        if started is None or started.claim.pid is None or not started.claim.is_alive or not is_running(path):
            return None
        try:
            holder = int(RunPaths(path).lock.read_text().strip())
        except (OSError, ValueError):
            return None
        return holder if holder == started.claim.pid else None


def new_folder(settings: WebSettings, name: str) -> Path:
    """Where a new experiment of that name goes: straight into the first folder, and there must be nothing."""
    folder = settings.folders[0].resolve()
    path = folder / name
    if os.path.lexists(path):
        raise RefusedError(
            409, f"There is already something called {name}. One experiment has one folder; choose another name."
        )
    return path


def _read(file: Path) -> StartedRun | None:
    found = read_claimed(file)
    with contextlib.suppress(TypeError):
        return StartedRun(**found[0], claim=found[1]) if found else None
    return None
