"""Try one trial of a user's script: its abilities (`check_trainer_ability`), or its step time (`time_trainer`).

Nothing is recorded; everything happens in a folder that is removed.
"""

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from batchscale.errors import RunError
from batchscale.records.metadata.trial import Hardware
from batchscale.spec.plan import Plan, Study
from batchscale.spec.redaction import redact_words
from batchscale.spec.trainer import TrainerSpec
from batchscale.study.trial import Activity, Row
from batchscale.trainers.command import make_middle_task
from batchscale.trainers.engine import TrainerEngine
from batchscale.trainers.failures import describe_tried
from batchscale.trainers.pool import ScriptPool
from batchscale.trainers.reports import Stamp
from batchscale.trainers.trial_run import StudyContext

MEASUREMENTS = 3
MIN_REPETITIONS = 3

SHOW_EVERY_S = 10.0
"""The time without a measurement after which a check says so."""


ShowLine = Callable[[str], None]
"""Receives a line about the progress of a check."""


class _Watch:
    """Shows how a script comes along: each measurement, at most one in `SHOW_EVERY_S`, and times without any."""

    def __init__(self, show: ShowLine) -> None:
        self._show = show
        self._engine: TrainerEngine | None = None
        self.begin("")

    def begin(self, stage: str, engine: TrainerEngine | None = None) -> None:
        """Show the stage that begins now; the engine's reports are shown until the next."""
        self._started_at = self._shown_at = self._received_at = time.monotonic()
        self._step = 0
        if engine is not None:
            self._engine = engine
            engine.listen(self._handle)
            self._show(stage)

    def tick(self) -> bool:
        """Show that there is no measurement, if there is none for long; never requests a stop."""
        now = time.monotonic()
        if now - max(self._received_at, self._shown_at) > SHOW_EVERY_S:
            self._shown_at = now
            trial = None if self._engine is None else self._engine.find(1)
            tried = "" if trial is None else describe_tried(trial.context.trainer.reports.text, trial.tried_lines)
            since = f"since step {self._step}" if self._step else "yet"
            self._show(f"  {now - self._started_at:.0f} s: no measurement {since}.{tried}")
        return False

    def _handle(self, _activity: Activity, step: int) -> None:
        now = time.monotonic()
        if step <= self._step:
            return
        is_first, self._step, self._received_at = self._step == 0, step, now
        if is_first or now - self._shown_at > SHOW_EVERY_S / 5:
            self._shown_at = now
            self._show(f"  {now - self._started_at:.1f} s: measured at step {step}")


@contextmanager
def _temporary_context(
    trainer: TrainerSpec, study: Study, environment: Mapping[str, str] | None
) -> Iterator[StudyContext]:
    with tempfile.TemporaryDirectory(prefix="batchscale-trainer-") as name:
        yield StudyContext(
            trainer=trainer,
            study=study,
            root=Path(name) / "trials",
            environment=os.environ if environment is None else environment,
            device=trainer.devices[0] if trainer.devices else None,
        )


# --- abilities -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ability:
    """The abilities of a trainer. ``largest_difference`` is relative, of a resumed and an uninterrupted trial.

    If there is one, ``is_repeatable`` tells whether two uninterrupted trials measure the same.
    """

    command: tuple[str, ...]
    steps: tuple[int, ...]
    metrics: tuple[str, ...]
    start_s: float
    step_time_s: float | None
    pauses: str
    resumed_from: int | None
    save_s: float | None
    largest_difference: float
    framework: str | None = None
    is_repeatable: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the same as plain values."""
        return asdict(self)


def check_trainer_ability(
    plan: Plan, environment: Mapping[str, str] | None = None, show: ShowLine = lambda _line: None
) -> Ability:
    """Return the abilities of an experiment's trainer, at its first batch size in the middle of the search space.

    It trains three measurements with a pause and a save, and the same again without interruption.

    Raises:
        TrialFailedError: it did not measure at the requested steps; the message has its last lines.
    """
    trainer, study = plan.experiment.trainer, plan.studies[0]
    assert trainer is not None
    with _temporary_context(trainer, study, environment) as context:
        return _check(context, study, _Watch(show))


def _check(context: StudyContext, study: Study, watch: _Watch) -> Ability:
    steps = study.evaluation_steps[:MEASUREMENTS]
    engine = TrainerEngine(context, ScriptPool(max_paused=1))
    plain, again = (
        TrainerEngine(replace(context, root=context.root.with_name(name)), ScriptPool(max_paused=0))
        for name in ("plain", "again")
    )
    rows: list[Row] = []
    save_s = resumed_from = None
    try:
        watch.begin(f"Starting the script at batch size {study.batch_size}, to step {steps[0]} …", engine)
        first = engine.advance([make_middle_task(study, steps[0])], watch.tick, None)[0]
        rows += first.rows
        trial = engine.trial(1)
        pauses = "waits" if trial.reports.paused is not None else "freezes" if trial.running else "leaves"
        for before, step in pairwise(steps[:-1]):
            watch.begin(f"Continuing the paused script to step {step} …", engine)
            rows += engine.advance([make_middle_task(study, step, before)], watch.tick, None)[0].rows
        if context.trainer.resume and len(steps) > 1:
            started = time.monotonic()
            engine.trial(1).stop(keep=True)
            save_s = time.monotonic() - started if engine.trial(1).has_state else None
        if len(steps) > 1:
            watch.begin(f"Continuing after a save and an exit, to step {steps[-1]} …", engine)
            rows += engine.advance([make_middle_task(study, steps[-1], steps[-2])], watch.tick, None)[0].rows
            resumed_from = _resumed_from(engine, steps[-2])
        watch.begin(f"Training the same without interruption, to step {steps[-1]} …", plain)
        (progress,) = plain.advance([make_middle_task(study, steps[-1])], watch.tick, None)
        others = progress.rows
        is_repeatable = None
        if _compare(rows, others) > 0:
            watch.begin("The results differ: training once more without interruption, to see why …", again)
            (repeated,) = again.advance([make_middle_task(study, steps[-1])], watch.tick, None)
            is_repeatable = _compare(list(others), repeated.rows) == 0
    finally:
        engine.close()
        plain.close()
        again.close()
    return Ability(
        command=tuple(redact_words(context.trainer.command)),
        steps=steps,
        metrics=tuple(rows[0][1]) if rows else (),
        start_s=first.timing.get("warm_up_s", math.nan),
        step_time_s=progress.timing.get("step_time_s"),
        pauses=pauses,
        resumed_from=resumed_from if save_s is not None else None,
        save_s=save_s,
        largest_difference=_compare(rows, progress.rows),
        framework=progress.framework,
        is_repeatable=is_repeatable,
    )


def _resumed_from(engine: TrainerEngine, before: int) -> int | None:
    """Return the step from which the last attempt continued; None if it began at step 0."""
    reports = engine.trial(1).reports
    if reports.restored is not None:
        return reports.restored
    return before if reports.stamps and reports.stamps[0].step > before else None


def _compare(rows: list[Row], others: tuple[Row, ...]) -> float:
    """Return the largest relative difference of any metric at any step."""
    largest = 0.0
    for (_, values), (_, other) in zip(rows, others, strict=False):
        for name, value in values.items():
            scale = max(abs(value), abs(other.get(name, math.nan)), 1e-12)
            difference = abs(value - other.get(name, math.nan)) / scale
            largest = max(largest, 0.0 if math.isnan(difference) else difference)
    return largest


# --- step time -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainerTiming:
    """Seconds per step in each repetition, and the seconds up to the first measurement.

    ``with_evaluation`` is True if the script did not report its own times, so that evaluation is included.
    """

    batch_size: int
    step_times_s: tuple[float, ...]
    steps_per_repetition: int
    warm_up_s: float
    with_evaluation: bool
    hardware: Hardware | None


def time_trainer(
    trainer: TrainerSpec,
    study: Study,
    repetitions: int,
    seconds: float,
    environment: Mapping[str, str] | None = None,
    show: ShowLine = lambda _line: None,
) -> TrainerTiming:
    """Return the step times of one trial of a study, in the middle of its search space; the start is warm-up.

    Steps are timed between the measurements of the experiment, by the script's own times (``train_s``) if it reports
    them, otherwise by when its reports arrive, evaluation included. Trains until there are ``repetitions`` of about
    ``seconds`` each, or to the end of the study's budget.

    Raises:
        RunError: there are too few measurements.
        TrialFailedError: the script broke a rule.
    """
    stamps: list[Stamp] = []  # the reports of a script are gone with it
    with _temporary_context(trainer, study, environment) as context:
        engine = TrainerEngine(context, ScriptPool(max_paused=0))
        watch = _Watch(show)
        watch.begin(f"Timing the script at batch size {study.batch_size} …", engine)

        def is_enough() -> bool:
            watch.tick()
            newest = engine.trial(1).reports.stamps
            stamps[:] = newest if len(newest) > len(stamps) else stamps
            timed = separate(stamps)
            return len(timed) > repetitions and timed[-1].at - timed[0].at >= repetitions * seconds

        try:
            (progress,) = engine.advance([make_middle_task(study, study.evaluation_steps[-1])], is_enough, None)
            is_enough()
        finally:
            engine.close()
    timed = separate(stamps)
    if len(timed) <= MIN_REPETITIONS:
        why = f"it diverged at step {progress.diverged_at}" if progress.diverged_at else "that is all its budget has"
        raise RunError(
            f"A trainer's step is timed between at least {MIN_REPETITIONS + 1} measurements that come apart. Found "
            f"{len(timed)} at batch size {study.batch_size}: {why}. Give it a larger budget, more evaluations, or a "
            "search space that does not diverge in its middle; or let it report train_s, the seconds it trained."
        )
    times, steps = _repetitions(timed, repetitions)
    has_own_times = all(stamp.train_s is not None for stamp in stamps)
    warm_up = progress.timing.get("warm_up_s", 0.0)
    return TrainerTiming(study.batch_size, times, steps, warm_up, not has_own_times, progress.hardware)


@dataclass(frozen=True)
class TimedStep:
    """A step and the time of its end, by the clock that counts."""

    step: int
    at: float


def separate(stamps: Sequence[Stamp]) -> list[TimedStep]:
    """Return the measurements by the script's own clock, or by their arrival; of several at once, the last."""
    has_own_times = all(stamp.train_s is not None for stamp in stamps)
    timed: list[TimedStep] = []
    for stamp in stamps:
        at = stamp.train_s if has_own_times and stamp.train_s is not None else stamp.received_at
        if timed and (at <= timed[-1].at or stamp.step <= timed[-1].step):
            timed.pop()
        timed.append(TimedStep(stamp.step, at))
    return timed


def _repetitions(timed: Sequence[TimedStep], repetitions: int) -> tuple[tuple[float, ...], int]:
    """Return the seconds per step of equal groups of measurements, and the steps of the first group."""
    each = max(1, (len(timed) - 1) // repetitions)
    ends = timed[::each][: repetitions + 1]
    times = tuple((after.at - before.at) / (after.step - before.step) for before, after in pairwise(ends))
    return times, ends[1].step - ends[0].step
