"""Try a trainer on one trial: three measurements, a pause, a save, and the same again without interruption.

Nothing is recorded; everything happens in a folder that is removed.
"""

import math
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from batchscale.search.units import to_value
from batchscale.spec.plan import Plan, Study
from batchscale.study.trial import Row, TrialTask
from batchscale.trainers.engine import TrainerEngine
from batchscale.trainers.pool import Pool
from batchscale.trainers.trial_run import Surroundings

MEASUREMENTS = 3


@dataclass(frozen=True)
class Ability:
    """What a trainer showed. ``largest_difference`` is relative, between a resumed trial and an uninterrupted one."""

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

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)


def check_trainer_ability(plan: Plan, environment: Mapping[str, str] | None = None) -> Ability:
    """What the trainer of an experiment can do, tried at its first batch size in the middle of the search space.

    Raises:
        TrialFailedError: it did not measure what it was asked to; says why, with its last lines.
    """
    trainer, study = plan.experiment.trainer, plan.studies[0]
    assert trainer is not None
    with tempfile.TemporaryDirectory(prefix="batchscale-check-") as name:
        around = Surroundings(
            trainer=trainer,
            study=study,
            root=Path(name) / "interrupted",
            environment=os.environ if environment is None else environment,
            device=trainer.devices[0] if trainer.devices else None,
        )
        return _try(around, study)


def _try(around: Surroundings, study: Study) -> Ability:
    steps = study.evaluation_steps[:MEASUREMENTS]
    engine = TrainerEngine(around, Pool(max_paused=1))
    plain = TrainerEngine(replace(around, root=around.root.with_name("plain")), Pool(max_paused=0))
    rows: list[Row] = []
    save_s = resumed_from = None
    try:
        first = engine.advance([_make_task(study, steps[0], -1)], _never, None)[0]
        rows += first.rows
        trial = engine.trial(1)
        pauses = "waits" if trial.heard.paused is not None else "freezes" if trial.running else "leaves"
        for before, step in pairwise(steps[:-1]):
            rows += engine.advance([_make_task(study, step, before)], _never, None)[0].rows
        if around.trainer.resume and len(steps) > 1:
            started = time.monotonic()
            engine.trial(1).leave(keep=True)
            save_s = time.monotonic() - started if engine.trial(1).has_state else None
        if len(steps) > 1:
            rows += engine.advance([_make_task(study, steps[-1], steps[-2])], _never, None)[0].rows
            resumed_from = _resumed_from(engine, steps[-2])
        (progress,) = plain.advance([_make_task(study, steps[-1], -1)], _never, None)
    finally:
        for one in (engine, plain):
            one.close()
    return Ability(
        command=around.trainer.command,
        steps=steps,
        metrics=tuple(rows[0][1]) if rows else (),
        start_s=first.timing.get("warm_up_s", math.nan),
        step_time_s=progress.timing.get("step_time_s"),
        pauses=pauses,
        resumed_from=resumed_from if save_s is not None else None,
        save_s=save_s,
        largest_difference=_compare(rows, progress.rows),
        framework=progress.framework,
    )


def _make_task(study: Study, until: int, after: int) -> TrialTask:
    values = {config.name: to_value(config, 0.5) for config in study.space}
    return TrialTask(1, {**study.fixed, **values}, study.seed, until, after)


def _never() -> bool:
    return False


def _resumed_from(engine: TrainerEngine, before: int) -> int | None:
    """The step that the last attempt went on from; None if it began anew."""
    heard = engine.trial(1).heard
    if heard.restored is not None:
        return heard.restored
    return before if heard.stamps and heard.stamps[0].step > before else None


def _compare(rows: list[Row], others: tuple[Row, ...]) -> float:
    """The largest relative difference of any metric at any step."""
    largest = 0.0
    for (_, values), (_, other) in zip(rows, others, strict=False):
        for name, value in values.items():
            scale = max(abs(value), abs(other.get(name, math.nan)), 1e-12)
            difference = abs(value - other.get(name, math.nan)) / scale
            largest = max(largest, 0.0 if math.isnan(difference) else difference)
    return largest
