"""Runs that are started from the web interface, continued and stopped.

A run is stopped only if the process that was started here holds the lock of its folder (``processes`` has the rest of
the proof). One that was started elsewhere is shown, never signalled.
"""

import contextlib
import os
from pathlib import Path

from batchscale.errors import RunError, StudyLockedError
from batchscale.formatting import count_text
from batchscale.records.durable import replace_durably
from batchscale.records.tree.layout import RunPaths
from batchscale.run.status import is_running
from batchscale.web.command_sequence import CommandStep
from batchscale.web.process_record import StartedProcess
from batchscale.web.processes import ProcessStore
from batchscale.web.records_folders import folder_id
from batchscale.web.refusals import RefusedError
from batchscale.web.settings import WebSettings


class WebRuns:
    """The runs of one server. Thread-safe; its state is on disk."""

    def __init__(self, settings: WebSettings) -> None:
        self._settings = settings
        self.processes = ProcessStore(settings.state / "runs")

    def find(self, path: Path) -> StartedProcess | None:
        """Return the latest run that was started here in a folder."""
        return self.processes.find(path)

    def is_ours(self, path: Path) -> bool:
        """True if the process that was started here holds the folder."""
        pid = self.processes.proven_pid(path)
        return pid is not None and _holds(path, pid)

    def is_starting(self, path: Path, status_written_at: float) -> bool:
        """True if the process that was started here after a status was written does not hold the folder yet."""
        started = self.find(path)
        return started is not None and started.record.noted_at > status_written_at and self._is_waiting(path)

    def is_ending(self, path: Path, status_written_at: float) -> bool:
        """True if the process that was started here has run, written its last status, and is still alive."""
        started = self.find(path)
        return started is not None and started.record.noted_at <= status_written_at and self._is_waiting(path)

    def _is_waiting(self, path: Path) -> bool:
        """True if the process that was started here is alive and does not hold the folder."""
        return self.processes.is_alive(path) and not is_running(path)

    @property
    def count(self) -> int:
        """The number of runs started here that are alive."""
        return self.processes.count

    def start_text(self, path: Path, text: str) -> None:
        """Start or continue the experiment of a TOML text in a folder; the text has been checked."""
        with self.processes.starting():
            self._check_can_start(path)
            name = folder_id(path)
            number = sum(1 for _ in self.processes.folder.glob(f"{name}-*.toml"))
            file = self.processes.folder / f"{name}-{number}.toml"
            replace_durably(file, text)
            self._start(path, file, is_own_file=False)

    def start_file(self, path: Path, file: Path) -> None:
        """Start or continue an experiment file of the folder that the server was started with."""
        with self.processes.starting():
            self._check_can_start(path)
            self._start(path, file, is_own_file=True)

    def stop(self, path: Path) -> None:
        """Stop the run as Ctrl-C does; nothing is lost.

        Raises:
            RefusedError: nothing runs there, or the process is not proven to be the one started here.
        """
        if not is_running(path):
            raise RefusedError(409, "There is no run to stop here: nothing holds the folder.")
        if not self.is_ours(path):
            raise RefusedError(
                409, "This run was not started here, so it cannot be stopped here. Stop it where it was."
            )
        self.processes.stop(path, lambda pid: _holds(path, pid))

    def text(self, path: Path) -> str | None:
        """Return the experiment file of the latest run started here."""
        started = self.find(path)
        with contextlib.suppress(OSError, UnicodeDecodeError, KeyError):
            return Path(started.details["file"]).read_text(encoding="utf-8") if started else None
        return None

    def last_output(self, path: Path) -> str:
        """Return the end of the output of the latest run, once it has ended."""
        return "" if self.find(path) is None or self.processes.is_alive(path) else self.processes.last_output(path)

    def _check_can_start(self, path: Path) -> None:
        if is_running(path) or self._is_waiting(path):
            raise StudyLockedError(f"{path.name}: only one run may write a folder at a time. Wait for it or stop it.")
        if self.count >= self._settings.limits.runs:
            most = count_text(self._settings.limits.runs, "run")
            raise RefusedError(429, f"At most {most} may run at once (--max-runs). Wait or stop one.")

    def _start(self, path: Path, file: Path, *, is_own_file: bool) -> None:
        words = ["run", str(file), "--out", str(path)]
        if self._settings.workers is not None:
            words += ["--workers", str(self._settings.workers)]
        try:
            RunPaths(path).working.mkdir(parents=True, exist_ok=True)  # the folder is listed from now on
        except OSError as error:
            raise RunError(f"The run could not be started: {error}.") from None
        details = {"path": str(path), "file": str(file), "is_own_file": is_own_file}
        self.processes.launch(path, details, [CommandStep(tuple(words), "run")], path.parent, has_status=False)


def _holds(path: Path, pid: int) -> bool:
    """True if the lock of a folder is held, and its file names this process."""
    try:
        return is_running(path) and int(RunPaths(path).lock.read_text().strip()) == pid
    except (OSError, ValueError):
        return False


def new_folder(settings: WebSettings, name: str) -> Path:
    """Return the folder of a new experiment, inside the first folder that is served; it must not exist yet."""
    path = settings.folders[0].resolve() / name
    if os.path.lexists(path):
        raise RefusedError(409, f"The name {name} is taken. One experiment has one folder; choose another name.")
    return path
