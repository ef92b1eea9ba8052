"""The interface of a runner: jobs in, events out. Where and how trials are trained is up to the runner."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from batchscale.records.metadata.trial import Hardware
from batchscale.spec.experiment import Experiment
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Study
from batchscale.study.failure import Failure
from batchscale.study.trial import Activity, TrialProgress, TrialTask
from batchscale.workers.fork_server import TRAINING_ENGINE

TRAINER_ENGINE = "batchscale.workers.script_engine:make_engine"


@dataclass(frozen=True)
class Setup:
    """The configuration that a worker receives before its first job.

    ``engine`` names the function that makes a study's engine. ``max_finished_bytes`` limits the stored states of a
    study's finished trials. ``num_devices`` is the number of devices of each worker, which trains one job at a time.
    ``states_url`` is a remote path for the states of running trials; it replaces the folder of checkpoints.
    """

    experiment: Experiment
    data_dir: Path | None = None
    checkpoint_dir: Path | None = None
    engine: str = TRAINING_ENGINE
    max_finished_bytes: int = 0
    options: Mapping[str, str] = field(default_factory=dict)
    num_devices: int = 1
    states_url: str | None = None


def trainer_options(environment: Mapping[str, str], workers: int) -> dict[str, str]:
    """Return the options of a trainer's setup: its scripts run in the user's environment, not in that of workers."""
    return {"environment": json.dumps(dict(environment)), "workers": str(workers)}


@dataclass(frozen=True)
class WorkerInfo:
    """A worker as its runner lists it.

    ``worker_id`` identifies this worker and the states that it holds for the lifetime of the runner; it is never
    reused. ``num_devices`` is the number of cores or accelerators that a job is spread over.
    """

    worker_id: str
    host: str = ""
    num_devices: int = 1


@dataclass(frozen=True)
class Job:
    """Some trials of one study, to be trained in one go by one worker.

    ``goal`` ends a trial at its first measurement that reaches it. ``population`` fixes how many trials are trained
    together (None: the worker chooses and reports it): results may depend on it in their last bits.
    """

    job_id: int
    study: Study
    tasks: tuple[TrialTask, ...]
    goal: Goal | None = None
    population: int | None = None


@dataclass(frozen=True)
class JobResult:
    """The progress of a job's trials, and the hardware that trained them.

    ``cut_short`` is set if the worker was stopping: trials that made no progress have not failed.
    """

    job_id: int
    worker_id: str
    progress: tuple[TrialProgress, ...]
    seconds: float
    population: int = 1
    hardware: Hardware | None = None
    cut_short: bool = False


class LossReason(StrEnum):
    """The reason of a failed job."""

    DIED = "died"
    OUT_OF_MEMORY = "out of memory"
    ERROR = "error"
    TIMED_OUT = "time-out"
    REFUSED = "refused"
    DISK_FULL = "disk full"
    NOT_STARTED = "not started"
    PREEMPTED = "taken away"

    @property
    def is_fault(self) -> bool:
        """True if the trial may have caused it, so that retries are limited."""
        return self not in (LossReason.NOT_STARTED, LossReason.PREEMPTED, LossReason.DISK_FULL)


@dataclass(frozen=True)
class JobFailed:
    """A job that was not finished: its worker died or raised. ``reason`` is for people: signal and last log lines.

    NOT_STARTED: the worker was lost before it started this job. PREEMPTED: a scheduler took the machine away. Neither
    is a failure of the trials. REFUSED: the experiment cannot be trained at all, with a message for the user.
    DISK_FULL: to be retried when there is room.
    """

    job_id: int
    worker_id: str
    loss: LossReason
    reason: Failure


@dataclass(frozen=True)
class WorkerActivity:
    """The current activity of a worker, for display. ``step`` is the largest step of its trials.

    ``population`` is how many trials are trained together, from a job that did not say: other workers need not wait
    for its result to know.
    """

    worker_id: str
    activity: Activity
    batch_size: int
    trial_ids: tuple[int, ...]
    step: int = 0
    population: int | None = None


Event = JobResult | JobFailed | WorkerActivity


class Runner(ABC):
    """The place where trials are trained.

    Promises that every runner keeps, and that one contract test suite checks on all of them:

    * **Every job is answered once.** A submitted job is answered exactly once, by `JobResult` or by `JobFailed`,
      unless the runner is closed first.
    * **Workers come and go.** The workers may change at any call; there may be none for hours (they wait in a
      cluster's queue). A job for a worker that has gone fails with NOT_STARTED. A runner on top of a scheduler lists
      a worker once it can run a job.
    * **Jobs stay with their worker.** A worker holds the states of the trials it trained. The jobs of one worker run
      one after the other, in the order in which they were submitted.
    * **Failed jobs can be retried.** A job that failed may be submitted again, to any worker, and gives the result
      that it would have given.
    * **Whole evaluations.** Progress is reported in whole evaluations; a job that was stopped may report fewer than
      it was submitted for.
    * **Activity is optional.** `WorkerActivity` comes as often as is cheap, in order with the worker's answers, or
      never; nothing depends on it.
    * **Ending.** `stop` makes running jobs end at their next chunk and report; `close` ends every process of the
      runner at once, whatever it is doing, and leaves none behind. Both may be called twice.
    * **No records.** A runner writes none. Nothing that it loses is needed to resume.

    All methods but `kill` are called from one thread.
    """

    @property
    @abstractmethod
    def workers(self) -> tuple[WorkerInfo, ...]:
        """The workers that accept jobs now."""

    @property
    def notices(self) -> tuple[str, ...]:
        """Messages about the workers for people (one was replaced, fewer run at once), oldest first."""
        return ()

    @abstractmethod
    def waiting(self, worker_id: str) -> int:
        """Return the number of unanswered jobs of a worker; 0 if it is gone."""

    @abstractmethod
    def submit(self, worker_id: str, job: Job) -> None:
        """Queue a job at a worker; it starts when the worker's earlier ones are answered.

        Raises:
            RunError: the runner is closed.
        """

    @abstractmethod
    def wait(self, timeout_s: float) -> list[Event]:
        """Return the events since the last call; block for the first one up to ``timeout_s``."""

    @abstractmethod
    def discard(self, batch_size: int, trial_ids: Sequence[int] = ()) -> None:
        """Make all workers drop these trials of a study with their checkpoints; without any, the whole study.

        A worker that never had a job of the study holds none of it and need not be contacted.
        """

    @abstractmethod
    def finish(self, batch_size: int, steps: Mapping[int, int]) -> None:
        """Make all workers drop these finished trials, by their last steps, from memory and store their states.

        A later run may train them longer from there, or, where no state was stored, from their seed.
        """

    @abstractmethod
    def stop(self) -> None:
        """Make all workers end their jobs at the next chunk and save their states for a later run."""

    @property
    @abstractmethod
    def at_rest(self) -> bool:
        """True if, after `stop`, every worker has answered its jobs and saved its states."""

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
