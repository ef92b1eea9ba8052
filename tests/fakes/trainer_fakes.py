"""Small values for tests of trainers: a study, an engine of the fake script, tasks."""

import os
import sys
from pathlib import Path

import batchscale
from batchscale.spec.file import parse_experiment
from batchscale.spec.plan import Study, make_plan
from batchscale.spec.trainer import TrainerSpec
from batchscale.study.trial import TrialTask
from batchscale.trainers.command import describe_trainer
from batchscale.trainers.engine import TrainerEngine
from batchscale.trainers.pool import ScriptPool
from batchscale.trainers.trial_run import StudyContext

HERE = Path(__file__).parent
SCRIPT = str(HERE / "fake_script.py")
SOURCE = str(Path(batchscale.__file__).parents[1])

EXPERIMENT = """
goal = "val/error < 0.2"
batch_sizes = {sizes}
trials = {trials}
stop = "{stop}"
[workload]
dataset = "fake"
model = "script"
optimizer = "none"
[budget]
steps = {steps}
[evaluation]
every = 10
[search]
repeats = 0
[search.space.learning_rate]
type = "DOUBLE"
scale = "LOG_SCALE"
min_value = 0.001
max_value = 0.5
[trainer]
command = {command}
timeout_s = 30
grace_s = {grace_s}
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SOURCE}


def experiment_text(
    *words: str,
    stop: str = "race",
    steps: int = 100,
    more: str = "",
    sizes: tuple[int, ...] = (8,),
    trials: int = 5,
    grace_s: float = 5,
) -> str:
    command = [sys.executable, SCRIPT, *words]
    listed = "[" + ", ".join(f"'{word}'" for word in command) + "]"
    values = {"stop": stop, "steps": steps, "sizes": list(sizes), "trials": trials, "grace_s": grace_s}
    return EXPERIMENT.format(command=listed, **values) + more


def make_trainer_plan(*words: str, folder: Path, **options):
    experiment = parse_experiment(experiment_text(*words, **options), folder=folder)
    return make_plan(experiment, describe_trainer(experiment))


def make_engine(folder: Path, *words: str, more: str = "resume = true\n", max_paused: int = 4, steps: int = 100):
    plan = make_trainer_plan(*words, folder=folder, more=more, steps=steps)
    trainer, study = plan.experiment.trainer, plan.studies[0]
    assert isinstance(trainer, TrainerSpec) and isinstance(study, Study)
    return TrainerEngine(StudyContext(trainer, study, folder / "trials", environment()), ScriptPool(max_paused), 10**9)


def task(trial_id: int = 1, until: int = 50, after: int = -1, rate: float = 0.05) -> TrialTask:
    return TrialTask(trial_id, {"learning_rate": rate}, 7, until, after)


def advance(engine: TrainerEngine, *tasks: TrialTask, goal=None, stop=lambda: False):
    return engine.advance(tasks, stop, goal)


def expected(rate: float, steps) -> list[tuple[int, dict[str, float]]]:
    """What the fake script measures, by the same additions."""
    rows, total = [], 0.0
    for step in range(1, max(steps, default=0) + 1):
        total += rate
        if step in steps:
            value = 1.0 / (1.0 + total)
            rows.append((step, {"val/error": value, "train/error": value / 2}))
    return rows
