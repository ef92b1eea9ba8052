"""The driver under 1,000 workers and 200,000 trials of 454 studies: does anything grow?

    python benchmarks/scale.py [--trials 200000] [--studies 454] [--workers 1000] [--stop budget] [--work FOLDER]

The workers are simulated (see ``simulated_cluster``); driver, protocol, records and disk are real. One run is stopped
in the middle, restarted, and restarted again when it is finished; `batchscale status` is asked in both states. The
folder gets three files or folders per trial and is removed at the end. ``--sizes 2000,20000`` repeats all for several
numbers of trials, so that growth can be told from cost.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
from simulated_cluster import SimulatedCluster

from batchscale.run.session import RunSettings, run_plan
from batchscale.run.signals import StopFlag
from batchscale.run.status import RunStatus
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.durations import Budget, EvaluationPlan, Unit
from batchscale.spec.experiment import Experiment, SearchPlan, StopRule, WorkloadSpec
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Plan, WorkloadInfo, make_plan
from batchscale.spec.space import ParameterConfig, ParameterType, Scale, SearchSpace
from batchscale.spec.workload_name import WorkloadName

NAME = WorkloadName("simulated", "model", "sgd")
SPACE = SearchSpace(
    (
        ParameterConfig("learning_rate", ParameterType.DOUBLE, 1e-4, 1.0, Scale.LOG),
        ParameterConfig("momentum", ParameterType.DOUBLE, 0.5, 0.999, Scale.REVERSE_LOG),
    )
)
METRICS = {"classification_error": False, "cross_entropy_error": False}
TRAIN_STEPS = 10_000


@dataclass(frozen=True)
class Case:
    """One simulation: what is run, on how many workers, where."""

    root: str
    trials: int
    studies: int
    workers: int
    measurements: int
    stop: str

    def make_plan(self) -> Plan:
        """As many batch sizes as studies: one driver feeds them all."""
        experiment = Experiment(
            workload=WorkloadSpec(NAME),
            goal=Goal.parse("val/classification_error < 0.05"),
            batch_sizes=BatchSizes(tuple(range(1, self.studies + 1))),
            trials=max(1, self.trials // self.studies),
            budget=Budget(TRAIN_STEPS, Unit.STEPS),
            evaluation=EvaluationPlan(count=self.measurements),
            stop=StopRule(self.stop),
            search=SearchPlan(repeats=0),
        )
        facts = WorkloadInfo(NAME, METRICS, 50_000, {"learning_rate": None, "momentum": None}, lambda _steps: SPACE)
        return make_plan(experiment, facts)


@dataclass
class Phase:
    """What one process of the driver did: ``memory_mb`` by the share of trials that are recorded."""

    start_s: float = 0.0
    wall_s: float = 0.0
    driver_cpu_s: float = 0.0
    snapshot_s: float = 0.0
    trials: int = 0
    measurements: int = 0
    answers: int = 0
    messages: int = 0
    simulated_s: float = 0.0
    busy_share: float = 0.0
    memory_mb: dict[int, float] = field(default_factory=dict)


def drive(case: Case, until: float) -> Phase:
    """Run or continue the simulation until a share of its trials is recorded."""
    import scipy.stats  # noqa: F401 - loaded once per run whatever its size; not what is measured here

    plan, process, phase, flag = case.make_plan(), psutil.Process(), Phase(), StopFlag()
    clusters: list[SimulatedCluster] = []
    first: list[int] = []

    def make_cluster(_setup: object) -> SimulatedCluster:
        clusters.append(SimulatedCluster(case.workers))
        return clusters[0]

    def show(snapshot: RunStatus) -> None:
        recorded = sum(s.complete + s.infeasible for s in snapshot.studies)
        first[:] = first or [recorded]
        done = recorded / sum(s.wanted for s in snapshot.studies)
        for mark in (10, 25, 50, 75, 100):
            if 100 * done >= mark and mark not in phase.memory_mb:
                phase.memory_mb[mark] = round(process.memory_info().rss / 2**20, 1)
        if done >= until and not flag.is_set:
            flag.set(signal.SIGTERM)

    cpu, began = sum(process.cpu_times()[:2]), time.monotonic()
    outcome = run_plan(plan, Path(case.root), RunSettings(make_runner=make_cluster), show, flag)
    ended = time.monotonic()
    phase.trials = sum(s.complete + s.infeasible for s in outcome.status.studies) - first[0]
    if clusters:
        cluster = clusters[0]
        assert cluster.first_job_at is not None
        phase.start_s = cluster.first_job_at - began
        phase.wall_s = ended - cluster.first_job_at
        phase.driver_cpu_s = sum(process.cpu_times()[:2]) - cpu - cluster.runner_s
        phase.answers, phase.messages, phase.simulated_s = cluster.answers, cluster.messages, cluster.clock_s
        phase.busy_share = cluster.busy_s / max(1e-9, cluster.clock_s * case.workers)
        phase.measurements = cluster.measurements
    else:
        phase.start_s = ended - began
    return phase


def drive_elsewhere(case: Case, until: float) -> Phase:
    """The same in a process of its own, so that its memory is its own."""
    command = [sys.executable, __file__, "--drive", json.dumps([asdict(case), until])]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
    print(json.dumps(found), file=sys.stderr, flush=True)  # a long run may be looked at before its end
    return Phase(**found | {"memory_mb": {int(mark): size for mark, size in found["memory_mb"].items()}})


def time_status(root: str, *options: str) -> float:
    """The seconds that `batchscale status` takes, from its start to its end; the best of three."""
    took = []
    for _ in range(3):
        began = time.monotonic()
        command = [sys.executable, "-m", "batchscale", "status", root, *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        took.append(time.monotonic() - began)
    return min(took)


def measure_disk(root: str) -> tuple[int, int]:
    """How many files and folders a tree has, and the bytes that they take on the disk."""
    count, taken, folders = 0, 0, [root]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                count, taken = count + 1, taken + 512 * entry.stat(follow_symlinks=False).st_blocks
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return count, taken


def simulate(case: Case) -> dict[str, float | int | str]:
    """The row of one case."""
    first = drive_elsewhere(case, 0.5)
    status_half = time_status(case.root)
    second = drive_elsewhere(case, 2.0)
    status_s, json_s = time_status(case.root), time_status(case.root, "--json")
    third = drive_elsewhere(case, 2.0)
    files, taken = measure_disk(case.root)
    trials, wall_s = first.trials + second.trials, first.wall_s + second.wall_s
    return {
        "stop": case.stop,
        "trials": trials,
        "studies": case.studies,
        "workers": case.workers,
        "measurements/s": round((first.measurements + second.measurements) / wall_s),
        "trials/s": round(trials / wall_s, 1),
        "driver cpu ms/trial": round(1e3 * (first.driver_cpu_s + second.driver_cpu_s) / trials, 3),
        "jobs": first.answers + second.answers,
        "messages": first.messages + second.messages,
        "cluster busy": round(first.busy_share, 3),
        "simulated/real time": round((first.simulated_s + second.simulated_s) / wall_s, 1),
        "MB at 10 %": first.memory_mb.get(10, 0.0),
        "MB at 50 %": first.memory_mb.get(50, 0.0),
        "MB at 100 %": second.memory_mb.get(100, 0.0),
        "first start s": round(first.start_s, 2),
        "restart at 50 % s": round(second.start_s, 2),
        "restart at 100 % s": round(third.start_s, 2),
        "status s": round(max(status_s, status_half), 2),
        "status --json s": round(json_s, 2),
        "files and folders": files,
        "MB on disk": round(taken / 2**20, 1),
    }


def print_rows(rows: list[dict[str, float | int | str]]) -> None:
    """One line per figure, one column per case."""
    for key in rows[0]:
        print(f"{key:22}" + "".join(f"{row[key]!s:>14}" for row in rows))


def main() -> None:
    """Print the table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200_000)
    parser.add_argument("--sizes", help="several numbers of trials, with commas between them")
    parser.add_argument("--studies", type=int, default=454)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--measurements", type=int, default=20)
    parser.add_argument("--stop", choices=list(StopRule), default="budget")
    parser.add_argument("--work", type=Path, help="a folder on the disk to measure; else that of temporary files")
    parser.add_argument("--keep", action="store_true", help="leave the records there")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.drive:
        case, until = json.loads(arguments.drive)
        print(json.dumps(asdict(drive(Case(**case), until))))
        return
    sizes = [int(size) for size in arguments.sizes.split(",")] if arguments.sizes else [arguments.trials]
    rows = []
    for trials in sizes:
        root = tempfile.mkdtemp(prefix="batchscale-scale-", dir=arguments.work)
        if os.statvfs(root).f_favail < 3 * trials + 10_000:
            sys.exit(f"{root}: {3 * trials:,} files are written. The file system has too few inodes left.")
        case = Case(root, trials, arguments.studies, arguments.workers, arguments.measurements, arguments.stop)
        try:
            rows.append(simulate(case))
        finally:
            if not arguments.keep:
                shutil.rmtree(root)
        print_rows(rows[-1:])
    if len(rows) > 1:
        print()
        print_rows(rows)
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
