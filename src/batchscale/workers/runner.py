"""The interface of a runner: jobs in, events out. Where and how trials are trained is the runner's own business."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from batchscale.records.facts.trial import Hardware
from batchscale.spec.experiment import Experiment
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Study
from batchscale.study.failure import Failure
from batchscale.study.tasks import Activity, TrialProgress, TrialTask

TRAINING_ENGINE = "batchscale.workers.training_host:make_engine"
TRAINER_ENGINE = "batchscale.workers.trainer_host:make_engine"


@dataclass(frozen=True)
class Setup:
    """What a worker must know before its first job.

    ``engine`` names the function that makes a study's engine. ``shelf_bytes`` is what the last states of a study's
    ended trials may take. ``num_devices`` is how many devices each worker has, for one trial at a time. ``states_url``
    is a remote path that keeps the states of running trials, in place of the folder of checkpoints.
    """

    experiment: Experiment
    data_dir: Path | None = None
    checkpoint_dir: Path | None = None
    engine: str = TRAINING_ENGINE
    shelf_bytes: int = 0
    options: Mapping[str, str] = field(default_factory=dict)
    num_devices: int = 1
    states_url: str | None = None


def trainer_options(environment: Mapping[str, str], workers: int) -> dict[str, str]:
    """The options of a trainer's setup: its scripts run in the user's environment, not in that of our workers."""
    return {"environment": json.dumps(dict(environment)), "workers": str(workers)}


@dataclass(frozen=True)
class WorkerInfo:
    """A worker, as its runner declares it.

    ``worker_id`` is opaque: it means this worker, with the states that it holds, for as long as the runner lives, and
    never another one. ``num_devices`` is how many cores or accelerators a job of it is spread over.
    """

    worker_id: str
    host: str = ""
    num_devices: int = 1


@dataclass(frozen=True)
class Job:
    """Some trials of one study, to be trained in one go by one worker.

    ``goal`` ends a trial at its first measurement that reaches it. ``population`` fixes how many trials are trained
    together (None: the worker chooses, and says so): results may depend on it in their last bits.
    """

    job_id: int
    study: Study
    tasks: tuple[TrialTask, ...]
    goal: Goal | None = None
    population: int | None = None


@dataclass(frozen=True)
class Done:
    """A job's answer: its trials' progress, and how the worker is.

    ``cut_short`` says that it was asked to end early: trials that came no further are no failures.
    """

    job_id: int
    worker_id: str
    progress: tuple[TrialProgress, ...]
    seconds: float
    population: int = 1
    hardware: Hardware | None = None
    cut_short: bool = False


class LossReason(StrEnum):
    """Why a job was lost."""

    DIED = "died"
    OUT_OF_MEMORY = "out of memory"
    ERROR = "error"
    REFUSED = "refused"
    DISK_FULL = "disk full"
    NOT_STARTED = "not started"
    TAKEN_AWAY = "taken away"

    @property
    def is_fault(self) -> bool:
        """Whether it may be the trial's own doing, so that it is not tried without end."""
        return self not in (LossReason.NOT_STARTED, LossReason.TAKEN_AWAY, LossReason.DISK_FULL)


@dataclass(frozen=True)
class Lost:
    """A job that was not finished: its worker died or raised. ``reason`` is for people: signal and last log lines.

    NOT_STARTED means that the worker was lost before it touched this job, and TAKEN_AWAY that a scheduler took its
    machine: no failures of its trials. REFUSED means that the experiment cannot be trained at all, with a message for
    the user; DISK_FULL that it should be tried again when there is room.
    """

    job_id: int
    worker_id: str
    loss: LossReason
    reason: Failure


@dataclass(frozen=True)
class Doing:
    """What a worker does now: news for people. ``step`` is how far the foremost of the trials is."""

    worker_id: str
    activity: Activity
    batch_size: int
    trial_ids: tuple[int, ...]
    step: int = 0


Event = Done | Lost | Doing


class Runner(ABC):
    """Where trials are trained.

    Promises that every runner keeps, and that one contract test suite checks on all of them:

    * **Every job is answered once.** A submitted job comes back exactly once, as `Done` or as `Lost`, unless the
      runner is closed first.
    * **Workers come and go.** The workers may be others, more or fewer, at any call, also none for hours (they wait in
      a cluster's queue). Whoever submits to a worker that has gone is not to blame: the job comes back `Lost` with
      NOT_STARTED. A runner on top of an engine with its own scheduler declares a worker once it can take a job.
    * **Jobs stay where they were given.** A worker holds the states of the trials it trained, so the jobs of one
      worker run there, one after the other, in the order in which they were submitted.
    * **Lost is not spoiled.** A job that comes back `Lost` may be submitted again, to any worker, and gives what it
      would have given.
    * **Whole evaluations.** Progress is reported in whole evaluations; a `Done` job that was asked to stop may report
      less than was asked for.
    * **News may be left out.** `Doing` comes as often as is cheap, in order with the worker's answers, or never;
      nothing depends on it.
    * **Ending.** `stop` makes running jobs end at their next chunk and be reported; `close` ends every process of the
      runner, at once, whatever they do, and leaves none behind. Both may be called twice.
    * **No records.** A runner writes none. Nothing that it loses is needed to resume.

    All methods but `kill` are called from one thread.
    """

    @property
    @abstractmethod
    def workers(self) -> tuple[WorkerInfo, ...]:
        """The workers that may be given a job now."""

    @property
    def notices(self) -> tuple[str, ...]:
        """What people should know of the workers (one was replaced, fewer run at once), oldest first."""
        return ()

    @abstractmethod
    def waiting(self, worker_id: str) -> int:
        """How many jobs a worker has that it has not answered; 0 if it is gone."""

    @abstractmethod
    def submit(self, worker_id: str, job: Job) -> None:
        """Give a worker a job; it starts when the worker's earlier ones are answered.

        Raises:
            RunError: the runner is closed.
        """

    @abstractmethod
    def wait(self, timeout_s: float) -> list[Event]:
        """The events since the last call; waits for one, but not longer than this."""

    @abstractmethod
    def forget(self, batch_size: int, trial_ids: Sequence[int] = ()) -> None:
        """Tell all workers to drop these trials of a study with their checkpoints; without any, the whole study.

        A worker that was given no job of the study holds none and need not be told.
        """

    @abstractmethod
    def shelve(self, batch_size: int, steps: Mapping[int, int]) -> None:
        """Tell all workers to drop these trials, which ended at these steps, from memory, and keep their last states.

        A later run may train them longer from there, or, where a state was not kept, from their seed.
        """

    @abstractmethod
    def stop(self) -> None:
        """Ask all workers to end their jobs at the next chunk and keep their states for a later run."""

    @property
    @abstractmethod
    def at_rest(self) -> bool:
        """After `stop`: whether every worker has answered its jobs and kept its states."""

    @abstractmethod
    def kill(self) -> None:
        """End all processes now; may be called from any thread. `close` must still follow."""

    @abstractmethod
    def close(self) -> None:
        """End everything now."""

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
