"""The engine host: runs the jobs of a worker, in whatever process the worker lives.

Holds one engine per study and decides when a trial's state is worth a checkpoint. Free of JAX: the engine is made by
the function that the setup names.
"""

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from batchscale.machine import name_processor
from batchscale.records.metadata.trial import Hardware
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Study
from batchscale.study.trial import Activity, TrialProgress, TrialTask
from batchscale.workers.runner import Job, JobResult, Setup, WorkerActivity

CHECKPOINT_AFTER_S = 20.0
"""A trial is checkpointed after so much training: the most that is lost when a worker dies."""

SAVE_AFTER_S = 0.5
"""A trial that has trained less than this is not worth a checkpoint when the run stops."""

MAX_ENGINES = 32

REPORT_EVERY_S = 0.5
"""The interval of activity reports; loading and compiling, which take long, are reported at once."""


class Engine(Protocol):
    """The part of a study's engine that a host needs."""

    @property
    def population_size(self) -> int:
        """The number of trials that are best trained together."""

    def advance(
        self, tasks: Sequence[TrialTask], should_stop: Callable[[], bool], goal: Goal | None
    ) -> list[TrialProgress]:
        """Train every task to its step, its divergence or the goal; less if ``should_stop`` returns True."""

    def save(self, trial_id: int, ending: bool = False) -> None:
        """Write a checkpoint of a trial that is held in memory; ``ending`` if it will be dropped from there."""

    def finish(self, trial_id: int, step: int) -> None:
        """Drop a trial that ended at this step from memory; store its state on disk if there is room."""

    def discard(self, trial_id: int) -> None:
        """Drop everything of a trial."""


Listener = Callable[[Activity, int], None]
"""Receives the activity of an engine and its step."""


@runtime_checkable
class TalkingEngine(Protocol):
    """An engine that reports its activity; optional."""

    def listen(self, listener: Listener) -> None:
        """Report to this listener from now on."""


@runtime_checkable
class ClosableEngine(Protocol):
    """An engine that holds more than memory; optional."""

    def close(self) -> None:
        """End what it started."""


MakeEngine = Callable[[Setup, Study, int | None], Engine]


def find_engine(name: str) -> MakeEngine:
    """Import the function ``module:function`` that makes engines."""
    module, _, function = name.partition(":")
    make_engine: MakeEngine = getattr(importlib.import_module(module), function)
    return make_engine


class EngineHost:
    """Runs jobs one after the other, with one engine per study."""

    def __init__(
        self,
        setup: Setup,
        worker_id: str,
        should_stop: Callable[[], bool],
        report: Callable[[WorkerActivity], None] = lambda _activity: None,
        make_engine: MakeEngine | None = None,
    ) -> None:
        self._setup = setup
        self._worker_id = worker_id
        self._report = report
        self._reported_at = -REPORT_EVERY_S
        self._trial_ids: tuple[int, ...] = ()
        self._should_stop = should_stop
        self._make_engine = make_engine or find_engine(setup.engine)
        self._engines: dict[int, Engine] = {}  # by batch size: an experiment has one study each
        self._unsaved_s: dict[tuple[int, int], float] = {}
        self._hardware = Hardware(name_processor(), "cpu", num_devices=1, num_hosts=1)

    def run(self, job: Job) -> JobResult:
        """Train a job."""
        started = time.monotonic()
        self._trial_ids = tuple(task.trial_id for task in job.tasks)
        engine = self._engine(job)
        first_step = max(task.from_step for task in job.tasks)
        chosen = engine.population_size if job.population is None else None
        self._report_activity(job.study.batch_size, Activity.TRAINING, first_step, chosen)
        progress = engine.advance(job.tasks, self._should_stop, job.goal)
        seconds = time.monotonic() - started
        self._checkpoint(job, seconds)
        return JobResult(
            job.job_id,
            self._worker_id,
            tuple(progress),
            seconds,
            engine.population_size,
            getattr(engine, "hardware", self._hardware),  # an engine on accelerators describes them
            self._should_stop(),
        )

    def discard(self, batch_size: int, trial_ids: Sequence[int] = ()) -> None:
        """Drop these trials of a study with their checkpoints; without any, the study's engine."""
        engine = self._engines.get(batch_size)
        if engine is None:
            return
        for trial_id in trial_ids:
            engine.discard(trial_id)
            self._unsaved_s.pop((batch_size, trial_id), None)
        if not trial_ids:
            self._drop(batch_size)

    def finish(self, batch_size: int, steps: Mapping[int, int]) -> None:
        """Drop these finished trials of a study, by their last steps, from memory; store their states."""
        engine = self._engines.get(batch_size)
        for trial_id, step in steps.items():
            if engine is not None:
                engine.finish(trial_id, step)
            self._unsaved_s.pop((batch_size, trial_id), None)

    def save(self) -> None:
        """Checkpoint every trial that would be costly to train again: the process is about to end."""
        for (batch_size, trial_id), seconds in sorted(self._unsaved_s.items(), key=lambda item: -item[1]):
            if seconds >= SAVE_AFTER_S:
                self._engines[batch_size].save(trial_id, ending=True)
        self._unsaved_s.clear()

    def close(self) -> None:
        """Close all engines."""
        for batch_size in list(self._engines):
            self._drop(batch_size)

    def _engine(self, job: Job) -> Engine:
        batch_size = job.study.batch_size
        if batch_size not in self._engines:
            while len(self._engines) >= MAX_ENGINES:
                self.save()
                self._drop(next(iter(self._engines)))
            self._report_activity(batch_size, Activity.LOADING, 0)
            engine = self._make_engine(self._setup, job.study, job.population)
            if isinstance(engine, TalkingEngine):
                engine.listen(partial(self._report_activity, batch_size))
            self._engines[batch_size] = engine
        return self._engines[batch_size]

    def _report_activity(self, batch_size: int, activity: Activity, step: int, population: int | None = None) -> None:
        now = time.monotonic()
        is_urgent = population is not None or activity in (Activity.LOADING, Activity.COMPILING)
        if is_urgent or now - self._reported_at >= REPORT_EVERY_S:
            self._reported_at = now
            step, trial_ids = max(step, 0), self._trial_ids
            self._report(WorkerActivity(self._worker_id, activity, batch_size, trial_ids, step, population))

    def _drop(self, batch_size: int) -> None:
        engine: object = self._engines.pop(batch_size, None)
        if isinstance(engine, ClosableEngine):
            engine.close()
        self._unsaved_s = {key: seconds for key, seconds in self._unsaved_s.items() if key[0] != batch_size}

    def _checkpoint(self, job: Job, seconds: float) -> None:
        for task in job.tasks:
            key = (job.study.batch_size, task.trial_id)
            self._unsaved_s[key] = self._unsaved_s.get(key, 0.0) + seconds / len(job.tasks)
            if self._unsaved_s[key] >= CHECKPOINT_AFTER_S:
                self._engines[job.study.batch_size].save(task.trial_id)
                del self._unsaved_s[key]
