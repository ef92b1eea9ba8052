"""Runs: driver processes that are started here, outlive the server, and are signalled only when proven ours.

Proof is that the folder's lock is held, that its file names the process we started, and that this process began at the
moment we wrote down: a process number alone may long be another's. The list of runs survives a restart of the server.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from batchscale.driver import is_running
from batchscale.errors import RunError, StudyLockedError
from batchscale.records import RunPaths, write_text_file
from batchscale.web.places import make_place
from batchscale.web.refusals import RefusedError
from batchscale.web.settings import WebSettings

LOG_BYTES = 8000
SAME_START_S = 0.02  # the clock of the kernel ticks a hundred times a second


@dataclass(frozen=True)
class StartedRun:
    """One run that was started here. ``file`` is its experiment file; ``began`` the start time of process ``pid``."""

    path: str
    file: str
    pid: int
    began: float
    is_own_file: bool = False


class WebRuns:
    """The runs of one server. Thread-safe."""

    def __init__(self, settings: WebSettings) -> None:
        self._settings = settings
        self._folder = settings.state / "runs"
        self._list = settings.state / "runs.json"
        self._lock = threading.Lock()
        self._started = self._load()
        self._children: list[subprocess.Popen[bytes]] = []

    def find(self, path: Path) -> StartedRun | None:
        """The latest run that was started here in a folder."""
        return self._started.get(str(path))

    def is_ours(self, path: Path) -> bool:
        """Whether the process that holds the folder is the one we started."""
        return self._prove(path) is not None

    def is_starting(self, path: Path) -> bool:
        """Whether our process lives and does not hold the folder yet."""
        started = self.find(path)
        return started is not None and _is_alive(started) and not is_running(path)

    @property
    def count(self) -> int:
        """How many of our runs are alive."""
        with self._lock:
            self._children = [child for child in self._children if child.poll() is None]
        return sum(_is_alive(started) for started in self._started.values())

    def start_text(self, path: Path, text: str) -> None:
        """Start or continue the experiment of a TOML text in a folder; the text has been checked."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        place = make_place(path, path.parent)
        number = sum(1 for _ in self._folder.glob(f"{place.id}-*.toml"))
        file = self._folder / f"{place.id}-{number}.toml"
        self._require_room(path)
        write_text_file(file, text)
        self._start(path, file, is_own_file=False)

    def start_file(self, path: Path, file: Path) -> None:
        """Start or continue an experiment file of the folder that the server was started with."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._require_room(path)
        self._start(path, file, is_own_file=True)

    def stop(self, path: Path) -> None:
        """Ask the run to stop, as Ctrl-C does; nothing is lost.

        Raises:
            RefusedError: nothing runs there, or a process that is not proven ours.
        """
        if not is_running(path):
            raise RefusedError(409, "There is no run to stop here: nothing holds the folder.")
        started = self._prove(path)
        if started is None:
            raise RefusedError(
                409, "This run was not started here, so it is not signalled from here. Stop it where it was."
            )
        try:
            handle = os.pidfd_open(started.pid)
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
        if started is None or _is_alive(started):
            return ""
        with contextlib.suppress(OSError), self._log(path).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
            return file.read().decode("utf-8", "replace")
        return ""

    def _require_room(self, path: Path) -> None:
        if is_running(path) or self.is_starting(path):
            raise StudyLockedError(
                f"{path.name}: one run writes a folder at a time, and one is at it. Wait for it or stop it."
            )
        if self.count >= self._settings.limits.runs:
            raise RefusedError(
                429, f"At most {self._settings.limits.runs} runs go on at once (--max-runs). Wait or stop one."
            )

    def _start(self, path: Path, file: Path, *, is_own_file: bool) -> None:
        RunPaths(path).working.mkdir(parents=True, exist_ok=True)  # the folder is listed from now on
        command = [sys.executable, "-m", "batchscale", "run", str(file), "--out", str(path)]
        if self._settings.workers is not None:
            command += ["--workers", str(self._settings.workers)]
        try:
            with self._log(path).open("wb") as log:
                child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                    cwd=path.parent,
                )  # fmt: skip
            began = psutil.Process(child.pid).create_time()
        except (OSError, psutil.Error) as error:
            raise RunError(f"The run could not be started: {error}.") from None
        with self._lock:
            self._children.append(child)
            self._started[str(path)] = StartedRun(str(path), str(file), child.pid, began, is_own_file)
            self._store()

    def _log(self, path: Path) -> Path:
        return self._folder / f"{make_place(path, path.parent).id}.log"

    def _prove(self, path: Path) -> StartedRun | None:
        started = self.find(path)
        if started is None or not is_running(path) or not _is_alive(started):
            return None
        try:
            holder = int(RunPaths(path).lock.read_text().strip())
        except (OSError, ValueError):
            return None
        return started if holder == started.pid else None

    def _load(self) -> dict[str, StartedRun]:
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            return {key: StartedRun(**value) for key, value in json.loads(self._list.read_bytes()).items()}
        return {}

    def _store(self) -> None:
        write_text_file(self._list, json.dumps({key: asdict(value) for key, value in self._started.items()}))


def new_folder(settings: WebSettings, name: str) -> Path:
    """Where a new experiment of that name goes: straight into the first folder, and there must be nothing."""
    folder = settings.folders[0].resolve()
    path = folder / name
    if os.path.lexists(path):
        raise RefusedError(
            409, f"There is already something called {name}. One experiment has one folder; choose another name."
        )
    return path


def _is_alive(started: StartedRun) -> bool:
    try:
        process = psutil.Process(started.pid)
        is_same = abs(process.create_time() - started.began) < SAME_START_S
        return bool(is_same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
