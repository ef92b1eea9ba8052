"""What a user's own file says of its workload, asked in a process of its own that has a time limit."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO

from batchscale.errors import SpecError, one_line
from batchscale.log_tail import last_lines, open_log
from batchscale.run.own_file_probe import KINDS, Answer, Question, Refusal
from batchscale.spec.bounds import declare_bounds
from batchscale.spec.experiment import Experiment
from batchscale.spec.plan import WorkloadInfo
from batchscale.study.failure import Failure
from batchscale.trainers.failures import describe_exit

# not `-m`: then question and answer would be classes of two modules
CHILD = "import sys; from batchscale.run.own_file_probe import main; main(int(sys.argv[1]))"
LOOK_EVERY_S = 0.1


def find_own_facts(
    experiment: Experiment, data_dir: Path | None, should_stop: Callable[[], bool] = lambda: False
) -> WorkloadInfo:
    """The facts of the workload that the experiment's own file registers; bounds that it declares hold here as well.

    Raises:
        SpecError: the file does not make a workload, ended or crashed its process, or took too long; with the last
            lines that it printed.
        KeyboardInterrupt: ``should_stop`` said so.
    """
    with tempfile.TemporaryFile() as output:
        answer = _ask(Question(experiment, data_dir), output, should_stop)
    if isinstance(answer, Refusal):
        raise next(kind for kind in KINDS if kind.__name__ == answer.kind)(answer.message)
    for name, bounds in answer.bounds.items():
        declare_bounds(name, bounds)
    return answer.facts


def _ask(question: Question, output: IO[bytes], should_stop: Callable[[], bool]) -> Answer | Refusal:
    ours, theirs = Pipe()
    words = [sys.executable, "-c", CHILD, str(theirs.fileno())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    child = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment | {"PYTHONUNBUFFERED": "1"},
        pass_fds=[theirs.fileno()],
        start_new_session=True,  # so that whatever the file starts ends with it
    )
    theirs.close()
    try:
        ours.send(question)
        return _wait(ours, child, question.experiment, output, should_stop)
    except (EOFError, OSError):
        code = child.wait()
        raise _wrong(question.experiment, f"it {describe_exit(code)}", "Mend it.", output) from None
    finally:
        ours.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _wait(
    pipe: Connection,
    child: subprocess.Popen[bytes],
    experiment: Experiment,
    output: IO[bytes],
    stop: Callable[[], bool],
) -> Answer | Refusal:
    limit_s = experiment.workload.file_timeout_s
    until = time.monotonic() + limit_s
    while not pipe.poll(LOOK_EVERY_S):
        if stop():
            raise KeyboardInterrupt
        if child.poll() is not None and not pipe.poll(0):  # a process that the file started may hold the pipe open
            raise EOFError
        if time.monotonic() > until:
            advice = "Mend it, or give it more time with workload.file_timeout_s."
            raise _wrong(experiment, f"it was still at it after {limit_s:g} s and was killed", advice, output)
    answer: Answer | Refusal = pipe.recv()
    return answer


def _wrong(experiment: Experiment, found: str, advice: str, output: IO[bytes]) -> SpecError:
    file = one_line(experiment.workload.file, 300)
    words = (
        f"workload.file is loaded and its functions are called once before anything is trained. Found {file}: {found}. "
        f"{advice}"
    )
    printed = tuple(one_line(line, 300) for line in last_lines(open_log(output.fileno())))
    return SpecError(str(Failure(words, printed)))
