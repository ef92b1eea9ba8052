"""The process that loads a user's own file and probes its workload, seen from inside: ``main`` is all it does.

Whatever that file does to its process (exit, crash, hang, threads that never end), it does it here. One question comes
through the pipe with this file descriptor, one answer goes back, and the process leaves without waiting for anybody.
"""

import contextlib
import os
import sys
import traceback
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from batchscale.errors import BatchscaleError, DataError, SpecError, UnknownNameError, one_line
from batchscale.spec.bounds import Bounds, declared_bounds
from batchscale.spec.experiment import Experiment
from batchscale.spec.plan import WorkloadInfo
from batchscale.spec.space import SearchSpace
from batchscale.workloads.catalogue import workload_info

KINDS: tuple[type[BatchscaleError], ...] = (SpecError, UnknownNameError, DataError)


@dataclass(frozen=True)
class Question:
    """What is asked of the file."""

    experiment: Experiment
    data_dir: Path | None


@dataclass(frozen=True)
class Answer:
    """The facts of the workload, and the bounds of metaparameters that the file has declared."""

    facts: WorkloadInfo
    bounds: dict[str, Bounds]


@dataclass(frozen=True)
class Refusal:
    """What is wrong; ``kind`` is the name of the error's class."""

    kind: str
    message: str


@dataclass(frozen=True)
class SpaceByBudget:
    """The default spaces of the experiment's step budgets: a function that another process can have."""

    spaces: dict[int, SearchSpace]

    def __call__(self, train_steps: int) -> SearchSpace:
        """The space for a step budget of the experiment."""
        return self.spaces[train_steps]


def probe(question: Question) -> Answer | Refusal:
    """What the file's workload needs to be planned, or what is wrong with it."""
    experiment = question.experiment
    try:
        facts = workload_info(experiment.workload, question.data_dir)
        spaces = {steps: facts.default_space(steps) for steps in _budgets(experiment, facts.num_train_examples)}
    except BatchscaleError as error:
        kind = next((one for one in KINDS if isinstance(error, one)), SpecError)
        return Refusal(kind.__name__, str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's own code may raise anything
        traceback.print_exc()
        return Refusal(SpecError.__name__, f"{experiment.workload.file} fails: {_describe(error)}")
    return Answer(replace(facts, default_space=SpaceByBudget(spaces)), declared_bounds())


def _budgets(experiment: Experiment, num_train_examples: int | None) -> set[int]:
    """The step budgets of the experiment; none where they make no sense, which is said when the plan is made."""
    with contextlib.suppress(BatchscaleError):
        sizes = experiment.batch_sizes.resolve(num_train_examples)
        return {experiment.budget.steps(size, num_train_examples) for size in sizes}
    return set()


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {one_line(error, 300)}"


def main(handle: int) -> None:
    """Answer the one question of the pipe with this file descriptor."""
    pipe = Connection(handle)
    pipe.send(probe(pipe.recv()))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # no waiting for threads of the user's own
