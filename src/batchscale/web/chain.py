"""Commands one after the other in a process that outlives the server: ``python -m batchscale.web.chain PLAN``.

The plan is a JSON file that the server wrote beside its token. Where the chain is and how it ended stands in a file of
its own, whole at every moment; an interrupt goes on to the command that runs, as Ctrl-C would.
"""

import json
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from batchscale.records.durable import replace_atomically
from batchscale.web.claims import claim

STOPPED = 130


@dataclass(frozen=True)
class ChainStep:
    """One ``batchscale`` command: its words, a file for what it prints, and whether the chain goes on if it fails."""

    words: tuple[str, ...]
    title: str
    output: str | None = None
    may_fail: bool = False


@dataclass(frozen=True)
class ChainPlan:
    """Steps in a folder; ``log`` takes their complaints, ``standing`` tells how far they are, ``job`` who does it."""

    steps: tuple[ChainStep, ...]
    folder: str
    log: str
    standing: str
    job: str


@dataclass(frozen=True)
class ChainStanding:
    """The step under way, counted from 1, and the exit code of the last; None while it goes on."""

    title: str
    number: int
    count: int
    code: int | None = None


def write_plan(file: Path, plan: ChainPlan) -> None:
    """Store a plan for the process."""
    file.write_text(json.dumps(asdict(plan)))


def read_standing(file: Path) -> ChainStanding | None:
    """How far a chain is; None if it never began."""
    try:
        return ChainStanding(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


class Chain:
    """Runs the steps of a plan."""

    def __init__(self, plan: ChainPlan) -> None:
        self._plan = plan
        self._child: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def interrupt(self, *_: object) -> None:
        """Ask the command under way to stop, and begin no other."""
        self._stopped = True
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGINT)

    def run(self) -> int:
        """All steps; the exit code of the first that failed, or 0."""
        code, count = 0, len(self._plan.steps)
        for number, step in enumerate(self._plan.steps, 1):
            self._tell(ChainStanding(step.title, number, count))
            code = self._run(step)
            if self._stopped:
                code = STOPPED
            if self._stopped or (code != 0 and not step.may_fail):
                self._tell(ChainStanding(step.title, number, count, code))
                return code
        self._tell(ChainStanding(self._plan.steps[-1].title, count, count, 0))
        return 0

    def _run(self, step: ChainStep) -> int:
        command = [sys.executable, "-m", "batchscale", *step.words]
        with Path(self._plan.log).open("ab") as log, Path(step.output or self._plan.log).open("ab") as output:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=log, cwd=self._plan.folder
            )
            if self._stopped:  # between two steps
                self.interrupt()
            return self._child.wait()

    def _tell(self, standing: ChainStanding) -> None:
        file = Path(self._plan.standing)
        replace_atomically(file, json.dumps(asdict(standing)))


def main() -> int:
    """Run the plan that is named on the command line."""
    stored = json.loads(Path(sys.argv[1]).read_bytes())
    steps = tuple(ChainStep(**{**one, "words": tuple(one["words"])}) for one in stored.pop("steps"))
    plan = ChainPlan(steps, **stored)
    chain = Chain(plan)
    signal.signal(signal.SIGINT, chain.interrupt)
    signal.signal(signal.SIGTERM, chain.interrupt)
    claim(Path(plan.job))  # from now on it can be stopped, and is
    return chain.run()


if __name__ == "__main__":
    sys.exit(main())
