"""The step time of a user's own trainer, from what it reports of one trial: the first measurement is warm-up.

Its steps are those between the measurements that the experiment asks for. A script that tells its own times
(``train_s``) is timed by them; otherwise by when its reports come, evaluation included.
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from batchscale.errors import RunError
from batchscale.records.metadata.trial import Hardware
from batchscale.search.units import to_value
from batchscale.spec.plan import Study
from batchscale.spec.trainer import TrainerSpec
from batchscale.study.trial import TrialTask
from batchscale.trainers.engine import TrainerEngine
from batchscale.trainers.pool import Pool
from batchscale.trainers.reports import Stamp
from batchscale.trainers.trial_run import Surroundings

FEWEST = 3  # repetitions


@dataclass(frozen=True)
class TrainerTiming:
    """Seconds per step in each repetition, and the seconds up to the first measurement.

    ``with_evaluation`` says that the script did not tell its own times, so that its measuring is in them.
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
) -> TrainerTiming:
    """The step times of one trial of a study, in the middle of its search space.

    Trains until there are ``repetitions`` of about ``seconds`` each, or to the end of the study's budget.

    Raises:
        RunError: there are too few measurements to time anything by.
        TrialFailedError: the script did not do what it must.
    """
    heard: list[Stamp] = []  # a script that leaves takes what it said with it
    with tempfile.TemporaryDirectory(prefix="batchscale-calibrate-") as name:
        around = Surroundings(
            trainer=trainer,
            study=study,
            root=Path(name),
            environment=os.environ if environment is None else environment,
            device=trainer.devices[0] if trainer.devices else None,
        )
        engine = TrainerEngine(around, Pool(max_paused=0))

        def enough() -> bool:
            said = engine.trial(1).heard.stamps
            heard[:] = said if len(said) > len(heard) else heard
            stamps = apart(heard)
            return len(stamps) > repetitions and stamps[-1].at - stamps[0].at >= repetitions * seconds

        values = {config.name: to_value(config, 0.5) for config in study.space}
        try:
            task = TrialTask(1, {**study.fixed, **values}, study.seed, study.evaluation_steps[-1], -1)
            (progress,) = engine.advance([task], enough, None)
            enough()
        finally:
            engine.close()
    stamps = apart(heard)
    if len(stamps) <= FEWEST:
        why = f"it diverged at step {progress.diverged_at}" if progress.diverged_at else "that is all its budget has"
        raise RunError(
            f"A trainer's step is timed between at least {FEWEST + 1} measurements that come apart. Found "
            f"{len(stamps)} at batch size {study.batch_size}: {why}. Give it a larger budget, more evaluations, or a "
            "search space that does not diverge in its middle; or let it report train_s, the seconds it trained."
        )
    times, steps = _repetitions(stamps, repetitions)
    told = all(stamp.train_s is not None for stamp in heard)
    warm_up = progress.timing.get("warm_up_s", 0.0)
    return TrainerTiming(study.batch_size, times, steps, warm_up, not told, progress.hardware)


@dataclass(frozen=True)
class TimedStep:
    """A step, and when it was done by the clock that counts."""

    step: int
    at: float


def apart(stamps: Sequence[Stamp]) -> list[TimedStep]:
    """The measurements by the script's own clock, or by when they came; of several that came at once, the last."""
    told = all(stamp.train_s is not None for stamp in stamps)
    found: list[TimedStep] = []
    for stamp in stamps:
        at = stamp.train_s if told and stamp.train_s is not None else stamp.heard_at
        if found and (at <= found[-1].at or stamp.step <= found[-1].step):
            found.pop()
        found.append(TimedStep(stamp.step, at))
    return found


def _repetitions(stamps: Sequence[TimedStep], repetitions: int) -> tuple[tuple[float, ...], int]:
    """Seconds per step of so many equal runs of measurements, and the steps of the first of them."""
    each = max(1, (len(stamps) - 1) // repetitions)
    ends = stamps[::each][: repetitions + 1]
    times = tuple((after.at - before.at) / (after.step - before.step) for before, after in pairwise(ends))
    return times, ends[1].step - ends[0].step
