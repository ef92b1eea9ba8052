"""What an experiment would take on this machine: the step of each batch size and an evaluation, timed.

Times one trial alone on one device, computing as a worker does. What is kept from it is the compiled programs only.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.errors import RunError

if TYPE_CHECKING:
    from batchscale.spec.plan import Plan, Study
    from batchscale.workloads.workload import Workload


@dataclass(frozen=True)
class RunTime:
    """The seconds of a step by batch size and of an evaluation, and of the whole run on so many workers.

    ``run_s`` counts one search at every batch size in which every trial trains to its step budget. Batch sizes that do
    not fit in memory have no step time, and then the run has no time either.
    """

    step_s: dict[int, float | None]
    evaluation_s: float
    workers: int
    run_s: float | None


def time_run(plan: "Plan", data_dir: Path | None, enter: Callable[[str], None]) -> RunTime:
    """Time the steps and an evaluation of a plan; ``enter`` is told what is being timed.

    Raises:
        RunError: the experiment trains with a script of the user's own, which only it can time.
    """
    from batchscale.workers.environment import check_devices, computing_like_a_worker, default_workers

    if plan.experiment.trainer is not None:
        raise RunError(
            "--time times steps of our own engine. Found a [trainer] table: 'batchscale trainer check' runs one trial "
            "of the script and says what its steps take."
        )
    with computing_like_a_worker():  # before anything of JAX is started
        from batchscale.training.calibration import Effort, OutOfMemoryError, time_steps
        from batchscale.workloads.registry import get_workload

        enter("loading data")
        workload = get_workload(plan.experiment.workload, data_dir)
        step_s: dict[int, float | None] = {}
        for study in plan.studies:
            enter(f"timing a step of batch size {study.batch_size:,}")
            try:
                times = time_steps(workload, study.batch_size, Effort(3, 0.2)).step_times_s
                step_s[study.batch_size] = sorted(times)[len(times) // 2]
            except OutOfMemoryError:
                step_s[study.batch_size] = None
        enter("timing an evaluation")
        evaluation_s = _time_evaluation(workload, plan)
    return _whole_run(plan, step_s, evaluation_s, default_workers(check_devices(plan.experiment.run.devices_per_trial)))


def _whole_run(plan: "Plan", step_s: dict[int, float | None], evaluation_s: float, workers: int) -> RunTime:
    total = 0.0
    for study in plan.studies:
        seconds = step_s[study.batch_size]
        if seconds is None:
            return RunTime(step_s, evaluation_s, workers, None)
        total += study.trials * (study.train_steps * seconds + len(study.evaluation_steps) * evaluation_s)
    return RunTime(step_s, evaluation_s, workers, total / workers)


def _time_evaluation(workload: "Workload", plan: "Plan") -> float:
    """The seconds of a warm evaluation of one trial, which hardly depends on the batch size."""
    from batchscale.study.trial import TrialTask
    from batchscale.training.settings import EngineSettings
    from batchscale.training.study_engine import StudyEngine

    study = replace(plan.studies[0], evaluation_steps=(0, 1), train_steps=1)
    engine = StudyEngine(workload, study, plan.experiment.evaluation, EngineSettings(population=1))
    values = _low_values(study)
    for trial_id in (1, 2):  # the first one compiles
        (progress,) = engine.advance([TrialTask(trial_id, values, seed=trial_id, until_step=1, from_step=-1)])
        engine.forget(trial_id)
    return progress.timing["evaluation_s"]


def _low_values(study: "Study") -> dict[str, float]:
    """The low end of every range: what is least likely to diverge."""
    low = {c.name: c.feasible_points[0] if c.feasible_points else c.min_value for c in study.space}
    return {**low, **study.fixed}
