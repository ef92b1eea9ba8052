"""A plan against reality: predicted and measured time to result of our own records, on one and on two processes.

    python benchmarks/plan_check.py [--processes 1 2] [--calibrate 8 64 …] [--predict 32 512] [--data-dir DIR]

Every process has a core of its own. The step is timed at some batch sizes, on one process and on several; the plan
takes these and the recorded curve; then the recorded winner (its values, its seed) is trained to the goal and the clock
is looked at, with everything compiled before. A clock is worth something on a machine that does nothing else.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
from distributed import free_port

from batchscale.analysis.curve_analysis import analyze
from batchscale.planning.curve import mean_interval
from batchscale.planning.evaluation import RunCosts
from batchscale.planning.machines import Machine
from batchscale.planning.plan import PlanRequest, make_plan
from batchscale.planning.read_curve import analysis_curve
from batchscale.planning.step_times import StepTime
from batchscale.records.read import read_records
from batchscale.spec.file import read_experiment

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
REPETITIONS = 6
REPETITION_S = 0.4
LONGER = 3  # times the recorded steps: the budget of the trial that is trained again


class World:
    """The processes that train together."""

    def __init__(self, count: int, experiment: Path, data_dir: str) -> None:
        names = [f"127.0.0.1:{free_port()}" for _ in range(count)]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "PJRT_NPROC"), "1")
        self.count, self.processes = count, []
        for place in range(count):
            cluster = json.dumps({"processes": names, "process": place}) if count > 1 else "none"
            words = [sys.executable, HERE / "plan_check_worker.py", place, cluster, experiment, data_dir]
            self.processes.append(
                subprocess.Popen(
                    [str(word) for word in words],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=os.environ | threads,
                )
            )

    def ask(self, **request: Any) -> dict[str, float]:
        """The chief's answer; all are asked."""
        for process in self.processes:
            assert process.stdin
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        answers = [_answer(process) for process in self.processes]
        return answers[0]

    def step_time(self, batch_size: int) -> StepTime:
        """A step of the batch on all processes, with its interval."""
        first = self.ask(do="time", batch_size=batch_size, steps=3)["step_time_s"]
        steps = max(3, min(20_000, int(REPETITION_S / first)))
        self.ask(do="time", batch_size=batch_size, steps=steps)  # warms caches
        found = [self.ask(do="time", batch_size=batch_size, steps=steps)["step_time_s"] for _ in range(REPETITIONS)]
        mean, low, high = mean_interval(found)
        return StepTime("this", 1, self.count, batch_size, mean, low, high)

    def close(self) -> None:
        """End the processes."""
        for process in self.processes:
            assert process.stdin
            process.stdin.close()  # no more requests: all leave together
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answer(process: "subprocess.Popen[str]") -> dict[str, float]:
    assert process.stdout
    for line in process.stdout:
        if line.startswith("{"):  # other lines are words of libraries
            return dict(json.loads(line))
    raise SystemExit("A process of the check died.")


def main() -> None:
    """Print a row of a table per number of processes and batch size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", type=Path, default=EXAMPLES / "mnist_fc_128_128_128.toml")
    parser.add_argument("--records", type=Path, default=EXAMPLES / "mnist_fc_records")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--calibrate", type=int, nargs="+", default=[8, 64, 128, 1024])
    parser.add_argument("--predict", type=int, nargs="+", default=[32, 512])
    parser.add_argument("--data-dir", default="", help="where the data set is")
    chosen = parser.parse_args()
    experiment = read_experiment(chosen.experiment)
    name = experiment.workload.name
    records = read_records(chosen.records)
    answer = analyze(records, name, experiment.goal)
    worlds = [World(count, chosen.experiment, chosen.data_dir) for count in chosen.processes]
    try:
        times = [world.step_time(size) for world in worlds for size in chosen.calibrate]
        write("| processes | batch size | steps | predicted | 90 % interval | measured | steps taken | error |")
        write("|---:|---:|---:|---:|---:|---:|---:|---:|")
        for world in worlds:
            for size in chosen.predict:
                row = answer.curve.filter(pl.col("batch_size") == size).row(0, named=True)
                write(compare(world, row, answer, times, records.workload(name)))
    finally:
        for world in worlds:
            world.close()


def compare(world: World, row: dict[str, Any], answer: Any, times: list[StepTime], records: Any) -> str:
    """Train the recorded winner again, and plan the same configuration."""
    size, every = row["batch_size"], max(row["spacing"], 1)
    keys = (pl.col("batch_size") == size) & (pl.col("trial_id") == row["trial_id"])
    seed = records.trials.filter(keys)["facts"].struct.field("seed")[0]
    values = {key: row[key] for key in records.metaparameters if row.get(key) is not None}
    budget = int(row["steps"] * LONGER)
    found = world.ask(do="train", batch_size=size, steps=budget, parameters=values, seed=seed, every=every)
    machine = Machine("this", "this", world.count, 1, 1.0, "USD", startup_s=found["startup_s"])
    plan = make_plan(
        analysis_curve(answer), times, [machine], PlanRequest(costs=RunCosts(found["evaluation_s"], every))
    )
    wanted = (pl.col("batch_size") == size) & (pl.col("devices_per_host") == world.count)
    planned = plan.table.filter(wanted).row(0, named=True)
    low, high = planned["time_low_s"], planned["time_high_s"]
    span = "none" if low is None or high is None else f"{low:.1f} to {high:.1f} s"
    return (
        f"| {world.count} | {size} | {row['steps']:,} | {planned['time_s']:.1f} s | {span} | {found['seconds']:.1f} s "
        f"| {int(found['steps']):,} | {planned['time_s'] / found['seconds'] - 1:+.0%} |"
    )


def write(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
