"""What it costs to measure a user's script: a trial of 1,000 measurements alone, and the same one driven in rounds.

``python benchmarks/trainer_overhead.py``. The script sleeps instead of training. Alone it is a dry run; driven it is
paused at the rounds of a race, its reports are read, and it is asked to go on. Both are timed from the script's start
to its last measurement; on a busy machine the processor time that driving adds, script, supervisor and engine together,
says more.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import batchscale
from batchscale.spec.file import parse_experiment
from batchscale.spec.plan import make_plan
from batchscale.study.trial import TrialTask
from batchscale.trainers.command import describe_trainer
from batchscale.trainers.engine import TrainerEngine
from batchscale.trainers.pool import ScriptPool
from batchscale.trainers.trial_run import StudyContext

MEASUREMENTS = 1000
ROUNDS = 64  # the first pause is at a 64th of the budget, and rounds double

SCRIPT = """
import time
from batchscale import trial
run = trial.start(learning_rate=0.1, max_steps={steps}, every=1)
for step, _ in run.steps(lambda step: step):
    time.sleep({sleep_s})
    if run.due(step):
        run.report(step, {{"val/loss": 1.0 / step, "train/loss": 2.0 / step}})
"""

EXPERIMENT = """
goal = "val/loss < 1e-9"
batch_sizes = [1]
trials = 1
[workload]
dataset = "sleep"
model = "none"
optimizer = "none"
[budget]
steps = {steps}
[evaluation]
every = 1
[search.space.learning_rate]
min_value = 0.1
max_value = 0.2
[trainer]
command = ["{python}", "script.py"]
resume = true
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sleep-ms", type=float, default=10.0, help="the time between two measurements")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sleep_s = options.sleep_ms / 1000
        (folder / "script.py").write_text(SCRIPT.format(steps=MEASUREMENTS, sleep_s=sleep_s))
        ratios, shares = [], []
        for number in range(options.rounds):
            before = processor_s()
            alone = time_alone(folder)
            between = processor_s()
            driven = time_driven(folder, number)
            added = (processor_s() - between) - (between - before)
            ratios.append(driven / alone - 1)
            shares.append(added / (MEASUREMENTS * sleep_s))
            print(f"alone {alone:.2f} s   driven {driven:.2f} s   processor time added {added:.2f} s")
        print(f"at {MEASUREMENTS} measurements {1000 * sleep_s:g} ms apart, medians:")
        print(f"  wall clock      {100 * statistics.median(ratios):+.2f} %")
        print(f"  processor time  {100 * statistics.median(shares):+.2f} % of the trial's time")


def processor_s() -> float:
    """The processor time of this process and of those it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def environment() -> dict[str, str]:
    """The user's, finding this batchscale."""
    return {**os.environ, "PYTHONPATH": str(Path(batchscale.__file__).parents[1]), "PYTHONUNBUFFERED": "1"}


def time_alone(folder: Path) -> float:
    """The seconds of a dry run."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "script.py"], cwd=folder, env=environment(), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def time_driven(folder: Path, number: int) -> float:
    """The seconds of the same trial through the engine, paused at the ends of a race's rounds."""
    text = EXPERIMENT.format(steps=MEASUREMENTS, python=sys.executable)
    experiment = parse_experiment(text, folder=folder)
    study = make_plan(experiment, describe_trainer(experiment)).studies[0]
    assert experiment.trainer is not None
    context = StudyContext(experiment.trainer, study, folder / f"trials-{number}", environment())
    engine = TrainerEngine(context, ScriptPool())
    ends = [MEASUREMENTS * power // ROUNDS for power in (1, 2, 4, 8, 16, 32, 64)]
    before, rows = -1, 0
    started = time.perf_counter()
    for end in ends:
        (progress,) = engine.advance([TrialTask(1, {"learning_rate": 0.1}, 1, end, before)], lambda: False, None)
        rows, before = rows + len(progress.rows), end
    seconds = time.perf_counter() - started
    engine.close()
    assert rows == MEASUREMENTS
    return seconds


if __name__ == "__main__":
    main()
