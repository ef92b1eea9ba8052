"""Load a user's Python file (``workload.file``) in a process of its own, with a time limit, and return its facts.

Whatever the file does to its process (exit, crash, hang, start threads that never end), it does it there. One request
goes through a pipe to the process, one answer comes back, and the process exits without waiting for anything.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO

from batchscale.errors import BatchscaleError, DataError, SpecError, UnknownNameError, one_line
from batchscale.log_tail import last_lines, open_log
from batchscale.spec.experiment import Experiment
from batchscale.spec.plan import WorkloadInfo
from batchscale.spec.space import Bounds, SearchSpace, declare_bounds, declared_bounds
from batchscale.study.failure import Failure
from batchscale.trainers.failures import describe_exit
from batchscale.workloads.registry import workload_info

# not `-m`: then requests and answers would be classes of two modules
CHILD = "import sys; from batchscale.run.user_file import main; main(int(sys.argv[1]))"
POLL_EVERY_S = 0.1
MARK = "BATCHSCALE_USER_FILE"
MAX_PASSES = 20
ERRORS: tuple[type[BatchscaleError], ...] = (SpecError, UnknownNameError, DataError)


@dataclass(frozen=True)
class Request:
    """The experiment whose file is loaded."""

    experiment: Experiment
    data_dir: Path | None


@dataclass(frozen=True)
class Answer:
    """The facts of the workload, and the bounds of metaparameters that the file has declared."""

    facts: WorkloadInfo
    bounds: dict[str, Bounds]


@dataclass(frozen=True)
class Refusal:
    """An error in the file; ``error`` is the name of the class."""

    error: str
    message: str


@dataclass(frozen=True)
class SpaceByBudget:
    """The default spaces of the experiment's step budgets: a function that can be pickled."""

    spaces: dict[int, SearchSpace]

    def __call__(self, train_steps: int) -> SearchSpace:
        """Return the space for a step budget of the experiment."""
        return self.spaces[train_steps]


# --- this process -----------------------------------------------------------------------------------------------


def load_user_file(
    experiment: Experiment, data_dir: Path | None, should_stop: Callable[[], bool] = lambda: False
) -> WorkloadInfo:
    """Return the facts of the workload that the experiment's file registers; its bounds are declared here as well.

    Raises:
        SpecError: the file does not make a workload, ended or crashed its process, or took too long; with the last
            lines that it printed.
        KeyboardInterrupt: ``should_stop`` returned True.
    """
    with tempfile.TemporaryFile() as output:
        answer = _send(Request(experiment, data_dir), output, should_stop)
    if isinstance(answer, Refusal):
        raise next(error for error in ERRORS if error.__name__ == answer.error)(answer.message)
    for name, bounds in answer.bounds.items():
        declare_bounds(name, bounds)
    return answer.facts


def _send(request: Request, output: IO[bytes], should_stop: Callable[[], bool]) -> Answer | Refusal:
    pipe, child_pipe = Pipe()
    mark = f"{MARK}={secrets.token_hex(16)}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(child_pipe.fileno())],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment | {"PYTHONUNBUFFERED": "1"} | dict([mark.split("=")]),
        pass_fds=[child_pipe.fileno()],
        start_new_session=True,  # so that whatever the file starts ends with it
    )
    child_pipe.close()
    try:
        pipe.send(request)
        return _receive(pipe, child, request.experiment, output, should_stop)
    except (EOFError, OSError):
        code = child.wait()
        raise _make_error(request.experiment, f"it {describe_exit(code)}", "Fix it.", output) from None
    finally:
        pipe.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        _end_marked(mark.encode())


def _end_marked(mark: bytes) -> None:
    """Kill the processes that the file started in sessions of their own: they inherited the mark in their environment.

    On Linux only. Each pass may miss what was started during it, so that passes are repeated until one finds nothing.
    """
    for _ in range(MAX_PASSES):
        marked = 0
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # another user's process, or one that has just ended
                if mark in entry.read_bytes().split(b"\0"):
                    marked += 1
                    os.kill(int(entry.parent.name), signal.SIGKILL)
        if not marked:
            return


def _receive(
    pipe: Connection,
    child: subprocess.Popen[bytes],
    experiment: Experiment,
    output: IO[bytes],
    should_stop: Callable[[], bool],
) -> Answer | Refusal:
    limit_s = experiment.workload.file_timeout_s
    until = time.monotonic() + limit_s
    while not pipe.poll(POLL_EVERY_S):
        if should_stop():
            raise KeyboardInterrupt
        if child.poll() is not None and not pipe.poll(0):  # a process that the file started may hold the pipe open
            raise EOFError
        if time.monotonic() > until:
            advice = "Fix it, or give it more time with workload.file_timeout_s."
            raise _make_error(experiment, f"it was still running after {limit_s:g} s and was killed", advice, output)
    answer: Answer | Refusal = pipe.recv()
    return answer


def _make_error(experiment: Experiment, problem: str, advice: str, output: IO[bytes]) -> SpecError:
    file = one_line(experiment.workload.file, 300)
    message = (
        f"workload.file is loaded and its functions are called once before anything is trained. Found {file}: "
        f"{problem}. {advice}"
    )
    printed = tuple(one_line(line, 300) for line in last_lines(open_log(output.fileno())))
    return SpecError(str(Failure(message, printed)))


# --- the child process ------------------------------------------------------------------------------------------


def main(handle: int) -> None:
    """Answer the one request of the pipe with this file descriptor, and exit."""
    pipe = Connection(handle)
    pipe.send(_load(pipe.recv()))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # without waiting for threads of the file


def _load(request: Request) -> Answer | Refusal:
    experiment = request.experiment
    try:
        facts = workload_info(experiment.workload, request.data_dir)
        spaces = {steps: facts.default_space(steps) for steps in _budgets(experiment, facts)}
    except BatchscaleError as error:
        error_class = next((error_class for error_class in ERRORS if isinstance(error, error_class)), SpecError)
        return Refusal(error_class.__name__, str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code may raise anything
        traceback.print_exc()
        description = f"{type(error).__name__}: {one_line(error, 300)}"
        return Refusal(SpecError.__name__, f"{experiment.workload.file} fails: {description}")
    return Answer(replace(facts, default_space=SpaceByBudget(spaces)), declared_bounds())


def _budgets(experiment: Experiment, facts: WorkloadInfo) -> set[int]:
    """Return the step budgets of the experiment; none if they are invalid, which the plan reports later."""
    with contextlib.suppress(BatchscaleError):
        tokens = experiment.tokens_per_example or facts.tokens_per_example
        experiment = experiment.in_examples(tokens)
        sizes = experiment.batch_sizes.resolve(facts.num_train_examples)
        return {experiment.budget.steps(size, facts.num_train_examples, tokens) for size in sizes}
    return set()
