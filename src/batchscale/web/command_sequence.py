"""Commands in a process that outlives the server: ``python -m batchscale.web.command_sequence PLAN``.

The plan is a JSON file in the server's state folder. The process registers itself in its record; if it cannot, nothing
is run. Then it becomes the only command of the plan, or runs the commands one by one and writes their status to a file
that is complete at every moment. SIGINT and SIGTERM are passed on to the running command.
"""

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from batchscale.records.durable import replace_atomically
from batchscale.web.process_record import register_process

STOPPED = 130


@dataclass(frozen=True)
class CommandStep:
    """One ``batchscale`` command, a title, a file for its output (None: the log), and if a failure is ignored."""

    words: tuple[str, ...]
    title: str
    output: str | None = None
    may_fail: bool = False


@dataclass(frozen=True)
class SequenceStatus:
    """The running step, counted from 1, and the exit code of the last; None while the sequence continues."""

    title: str
    number: int
    count: int
    code: int | None = None


def read_status(file: Path) -> SequenceStatus | None:
    """Return the status of a sequence; None if it never began."""
    try:
        return SequenceStatus(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


@dataclass(frozen=True)
class CommandSequence:
    """Commands in order, the record of the process that runs them, and the file of their status.

    Without a status file there is one command, and the process becomes it: same number, same start time.
    """

    steps: tuple[CommandStep, ...]
    record: str
    status: str | None

    def write(self, file: Path) -> None:
        """Store the sequence for the process."""
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, file: Path) -> "CommandSequence":
        """Return a stored sequence."""
        stored: dict[str, Any] = json.loads(file.read_bytes())
        steps = tuple(CommandStep(**{**step, "words": tuple(step["words"])}) for step in stored.pop("steps"))
        return cls(steps, **stored)


class SequenceRunner:
    """Runs the steps of a sequence."""

    def __init__(self, sequence: CommandSequence) -> None:
        self._sequence = sequence
        self._child: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def interrupt(self, *_: object) -> None:
        """Interrupt the running command, and start no other."""
        self._is_stopped = True
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGINT)

    def run(self) -> int:
        """Run all steps; return the exit code of the first that failed, or 0."""
        steps = self._sequence.steps
        for number, step in enumerate(steps, 1):
            self._write_status(SequenceStatus(step.title, number, len(steps)))
            code = self._run_step(step)
            if self._is_stopped:
                code = STOPPED
            if self._is_stopped or (code != 0 and not step.may_fail):
                self._write_status(SequenceStatus(step.title, number, len(steps), code))
                return code
        self._write_status(SequenceStatus(steps[-1].title, len(steps), len(steps), 0))
        return 0

    def _run_step(self, step: CommandStep) -> int:
        command = [sys.executable, "-m", "batchscale", *step.words]
        with Path(step.output or os.devnull).open("ab") as output:
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output if step.output else None)
            if self._is_stopped:  # between two steps
                self.interrupt()
            return self._child.wait()

    def _write_status(self, status: SequenceStatus) -> None:
        assert self._sequence.status is not None
        replace_atomically(Path(self._sequence.status), json.dumps(asdict(status)))


def main() -> int:
    """Run the sequence whose file is named on the command line."""
    sequence = CommandSequence.read(Path(sys.argv[1]))
    if sequence.status is None:
        register_process(Path(sequence.record))
        words = sequence.steps[0].words
        os.execv(sys.executable, [sys.executable, "-m", "batchscale", *words])  # noqa: S606 - no shell
    runner = SequenceRunner(sequence)
    signal.signal(signal.SIGINT, runner.interrupt)
    signal.signal(signal.SIGTERM, runner.interrupt)
    register_process(Path(sequence.record))  # from now on it can be stopped
    return runner.run()


if __name__ == "__main__":
    sys.exit(main())
