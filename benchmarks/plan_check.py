"""A plan against reality: predicted and measured time to result of our own MNIST records, on this machine.

Calibrates the step at some batch sizes, plans with the recorded curve, then trains the recorded winner (its values, its
seed) until it reaches the goal and takes the time, with everything compiled before. MNIST must be there.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import polars as pl

from batchscale.analysis import analyze
from batchscale.driver.single_trial import SingleTrial, train_single
from batchscale.planning import Machine, RunCosts, StepTime, Wishes, analysis_curve, make_plan
from batchscale.planning.curve import mean_interval
from batchscale.records import read_records
from batchscale.spec import EvaluationPlan, WorkloadName, read_experiment
from batchscale.training.calibration import Effort, time_steps
from batchscale.workloads.registry import get_workload

ROOT = Path(__file__).parents[1]
NAME = WorkloadName("mnist", "fc_128_128_128", "sgd")


def main() -> None:
    """Prints a row of a table per batch size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calibrate", type=int, nargs="+", default=[8, 64, 128, 1024, 2048])
    parser.add_argument("--predict", type=int, nargs="+", default=[32, 512])
    parser.add_argument("--processor-time", action="store_true", help="leave out what other work takes")
    chosen = parser.parse_args()
    clock = time.process_time if chosen.processor_time else time.perf_counter
    experiment = read_experiment(ROOT / "examples" / "mnist_fc_128_128_128.toml")
    workload = get_workload(experiment.workload, None)
    records = read_records(ROOT / "examples" / "mnist_fc_records")
    answer = analyze(records, NAME, experiment.goal)
    times = []
    for size in chosen.calibrate:
        mean, low, high = mean_interval(time_steps(workload, size, Effort(8, 0.5, clock)).step_times_s)
        times.append(StepTime("this", 1, 1, size, mean, low, high))
    print("| batch size | steps | predicted | 90 % interval | measured | steps taken | error |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for size in chosen.predict:
        row = answer.curve.filter(pl.col("batch_size") == size).row(0, named=True)
        steps, seconds, (startup_s, evaluation_s), every = measure(workload, experiment, records, row, clock)
        costs = RunCosts(evaluation_s, every)
        plan = make_plan(
            analysis_curve(answer),
            times,
            [Machine("this", "this", 1, 1, 1.0, "USD", startup_s=startup_s)],
            Wishes(costs=costs),
        )
        found = plan.table.filter(pl.col("batch_size") == size).row(0, named=True)
        low, high = found["time_low_s"], found["time_high_s"]
        span = "none" if low is None or high is None else f"{low:.1f} to {high:.1f} s"
        print(
            f"| {size} | {row['steps']:,} | {found['time_s']:.1f} s | {span} | {seconds:.1f} s | {steps:,} "
            f"| {found['time_s'] / seconds - 1:+.0%} |",
            flush=True,
        )


def measure(workload, experiment, records, row, clock):
    """Steps and seconds of the recorded winner trained again, seconds to start and to evaluate, steps between."""
    trials = records.workload(NAME).trials.filter(
        (pl.col("batch_size") == row["batch_size"]) & (pl.col("trial_id") == row["trial_id"])
    )
    seed = trials["facts"].struct.field("seed")[0]
    budget = int(row["steps"] * 3)
    every = max(row["spacing"], 1)
    trial = SingleTrial(
        batch_size=row["batch_size"],
        steps=budget,
        parameters={"learning_rate": row["learning_rate"]},
        evaluation=EvaluationPlan(every=every, examples=experiment.evaluation.examples),
        seed=seed,
        early_stop=experiment.goal,
    )
    besides = time_besides(workload, trial, clock)
    began = clock()
    outcome = train_single(workload, trial, lambda *_: None, lambda: False)
    seconds = clock() - began
    return outcome.steps, seconds, besides, every


def time_besides(workload, trial, clock):
    """Seconds to start (ten steps that are compiled already) and of one evaluation (nine more in these steps)."""
    took = {}
    for every in (1, 1, 10):
        plan = EvaluationPlan(every=every, examples=trial.evaluation.examples)
        short = replace(trial, steps=10, evaluation=plan, early_stop=None)
        began = clock()
        train_single(workload, short, lambda *_: None, lambda: False)
        took[every] = clock() - began
    return took[10], max(took[1] - took[10], 0.0) / 9


if __name__ == "__main__":
    main()
