"""Import and query the synthetic archive, beside the straightforward pandas way.

    python benchmarks/archive.py --scale 0.1 --work /tmp/archive

Each measurement runs in a process of its own, so that peak memory is its own; ours and the peer's take turns, and the
least of each counts: of processor time, which other work on the machine disturbs least, and of the clock, which is what
a user waits for on a machine that has nothing else to do. The pandas way is what the published reader does: json and
read_csv per trial of the unpacked tree, then concat; its warm query has these frames in memory.
"""

import argparse
import bz2
import importlib
import json
import math
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from synthetic_archive import ROOT, Scale, published_studies, write_archive
from synthetic_workloads import loss_model


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1, help="share of the trials; 1 is the published size")
    parser.add_argument("--work", type=Path, required=True, help="folder for the archive and the table")
    parser.add_argument("--skip-pandas", action="store_true", help="measure batchscale only")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    results = run(options.scale, options.work, with_pandas=not options.skip_pandas)
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        for name, value in results.items():
            print(f"{name:40} {value:,.3f}" if isinstance(value, float) else f"{name:40} {value:,}")


def run(scale: float, work: Path, with_pandas: bool) -> dict[str, Any]:
    """Every number, by name."""
    archive, table, tree = work / f"synthetic-{scale:g}.tar.bz2", work / "table", work / "tree"
    if not archive.exists():
        part = archive.with_name(f"part-{archive.name}")
        write_archive(part, Scale(scale))
        part.replace(archive)
    results: dict[str, Any] = {"archive_bytes": archive.stat().st_size}
    shutil.rmtree(tree, ignore_errors=True)
    with tarfile.open(archive) as tar:
        tar.extractall(tree, filter="data")
    ways: dict[str, tuple[Callable[..., dict[str, Any]], tuple[Path, ...]]] = {
        "import": (_import, (archive, table)),
        "decompress": (_decompress, (archive,)),
        "tree_import": (_import, (tree / ROOT, table)),
        "query": (_query, (table,)),
        "warm_query": (_warm_query, (table,)),
        "analyze": (_analyze, (table,)),
    }
    if with_pandas:
        ways |= {
            "pandas_tree_import": (_pandas_import, (tree,)),
            "pandas_query": (_pandas_query, (tree,)),
            "pandas_warm_query": (_pandas_warm_query, (tree,)),
        }
    for _ in range(TURNS):
        for name, (work_of, arguments) in ways.items():
            if work_of is _import:
                shutil.rmtree(table, ignore_errors=True)
            for key, value in _alone(work_of, *arguments).items():
                results[f"{name}_{key}"] = min(value, results.get(f"{name}_{key}", value))
    results["table_bytes"] = sum(path.stat().st_size for path in table.rglob("*") if path.is_file())
    for clock in CLOCKS:
        results[f"import_over_decompression_{clock}"] = results[f"import_{clock}"] / results[f"decompress_{clock}"]
    if with_pandas:
        results["warm_query_speedup"] = results["pandas_warm_query_cpu_seconds"] / results["warm_query_cpu_seconds"]
        for clock in CLOCKS:
            speedup = results[f"pandas_tree_import_{clock}"] / results[f"tree_import_{clock}"]
            results[f"tree_import_speedup_{clock}"] = speedup
    shutil.rmtree(tree, ignore_errors=True)
    return results


TURNS = 3
CLOCKS = ("cpu_seconds", "seconds")
OURS = ["batchscale.records.table.import_records", "batchscale.analysis.curve_analysis"]
WARM_GOALS = 30
ANALYZE_RUNS = 5
COMPARED = ("mnist", "simple_cnn_base", "nesterov_momentum")


def _import(archive: Path, table: Path) -> dict[str, Any]:
    from batchscale.records.table.import_records import import_records

    summary = import_records(archive, table)
    return {"trials": sum(summary.trials.values()), "measurements": summary.measurements}


def _goal(dataset: str, model: str, optimizer: str) -> Any:
    from batchscale.spec.goal import Goal

    facts = loss_model(dataset, model, optimizer)
    if facts.kind == "language":
        return Goal("val/cross_entropy_error", facts.goal)
    if facts.kind == "average_precision":
        return Goal("val/average_precision", 1 - facts.goal, maximize=True)
    return Goal("val/classification_error", facts.goal)


def _query(table: Path) -> dict[str, Any]:
    """The curve of every workload: each alone, the table opened anew; then all with one open table."""
    from batchscale.analysis.results import steps_to_result
    from batchscale.records.read import read_records
    from batchscale.spec.workload_name import WorkloadName

    def curve(records: Any, name: WorkloadName) -> None:
        found = steps_to_result(
            records.workload(name).first_trials(100), _goal(name.dataset, name.model, name.optimizer)
        )
        reached = found["steps"].drop_nulls()
        assert len(reached) == found.height, f"{name}: some batch sizes do not reach the goal"

    names = read_records(table).workloads
    seconds = {}
    for name in [WorkloadName(*COMPARED), *names]:
        start = time.perf_counter()
        curve(read_records(table), name)
        seconds.setdefault("first" if not seconds else str(name), time.perf_counter() - start)
    start = time.perf_counter()
    records = read_records(table)
    for name in names:
        curve(records, name)
    everything = time.perf_counter() - start
    first = seconds.pop("first")
    return {
        "first_in_process_seconds": first,
        "slowest_workload_seconds": max(seconds.values()),
        "same_seconds": seconds["/".join(COMPARED)],
        "all_workloads_seconds": everything,
    }


def _decompress(archive: Path) -> dict[str, Any]:
    """What no import from bzip2 can do without."""
    size = 0
    with bz2.open(archive) as file:
        while chunk := file.read1(2**20):
            size += len(chunk)
    return {"bytes": size}


def _warm_goals() -> list[Any]:
    goal = _goal(*COMPARED)
    return [replace(goal, value=goal.value * (1 + i / 10)) for i in range(WARM_GOALS)]


def _warm_query(table: Path) -> dict[str, Any]:
    """One more goal of a workload on open records."""
    from batchscale.analysis.results import steps_to_result
    from batchscale.records.read import read_records
    from batchscale.spec.workload_name import WorkloadName

    records = read_records(table)
    goals = _warm_goals()

    def query(goal: Any) -> None:
        steps_to_result(records.workload(WorkloadName(*COMPARED)).first_trials(100), goal)

    query(goals[0])
    return {"cpu_seconds": _median(query, goals)}


def _median(query: Callable[[Any], Any], goals: list[Any]) -> float:
    """The median processor time of a query."""
    times = []
    for goal in goals:
        start = time.process_time()
        query(goal)
        times.append(time.process_time() - start)
    return sorted(times)[len(times) // 2]


def _analyze(table: Path) -> dict[str, Any]:
    """The whole command, from the start of Python."""
    goal = str(_goal(*COMPARED))
    command = [sys.executable, "-m", "batchscale", "analyze", str(table), "--workload", "/".join(COMPARED)]
    # An installed package has its bytecode; one run sees to it here.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    least = dict.fromkeys(CLOCKS, math.inf)
    for _ in range(1 + ANALYZE_RUNS):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([*command, "--goal", goal], check=True, stdout=subprocess.DEVNULL, env=environment)
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        least = {"cpu_seconds": min(used, least["cpu_seconds"]), "seconds": min(seconds, least["seconds"])}
    return least


def _pandas_import(tree: Path) -> dict[str, Any]:
    rows = 0
    for study in published_studies():
        _, measurements = _pandas_study(tree / ROOT / study.folder)
        rows += len(measurements)
    return {"measurements": rows}


def _pandas_study(folder: Path) -> tuple[Any, Any]:
    import pandas as pd

    trials, measurements = [], []
    for path in folder.iterdir():
        if not path.is_dir():
            continue
        metadata = json.loads((path / "metadata.json").read_text())
        trials.append(metadata)
        frame = pd.read_csv(path / "measurements.csv")
        frame["trial_id"] = metadata["trial_id"]
        measurements.append(frame)
    return pd.DataFrame(trials), pd.concat(measurements)


def _pandas_frames(tree: Path) -> dict[int, tuple[Any, Any]]:
    return {
        study.batch_size: _pandas_study(tree / ROOT / study.folder)
        for study in published_studies()
        if (study.dataset, study.model, study.optimizer) == COMPARED
    }


def _pandas_curve(frames: dict[int, tuple[Any, Any]], goal: Any) -> dict[int, Any]:
    curve = {}
    for size, (trials, measurements) in frames.items():
        complete = trials[trials.status == "COMPLETE"].trial_id.sort_values().head(100)
        reached = measurements[measurements.trial_id.isin(complete) & (measurements[goal.metric] < goal.value)]
        curve[size] = reached.step.min()
    return curve


def _pandas_query(tree: Path) -> dict[str, Any]:
    """The curve of one workload the published way: every trial of it is read."""
    start = time.perf_counter()
    _pandas_curve(_pandas_frames(tree), _goal(*COMPARED))
    return {"seconds": time.perf_counter() - start}


def _pandas_warm_query(tree: Path) -> dict[str, Any]:
    """One more goal with the workload's frames in memory."""
    frames = _pandas_frames(tree)
    return {"cpu_seconds": _median(lambda goal: _pandas_curve(frames, goal), _warm_goals())}


def _alone(work: Callable[..., dict[str, Any]], *arguments: Path) -> dict[str, Any]:
    """The results of a function that runs in a fresh process, with its processor time and peak memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, (work, arguments))


def _measured(work: Callable[..., dict[str, Any]], arguments: tuple[Path, ...]) -> dict[str, Any]:
    loaded = ["pandas"] if "pandas" in work.__name__ else OURS
    for name in loaded:  # loading libraries is no part of reading records; the whole command is measured apart
        importlib.import_module(name)
    start, clock = time.process_time(), time.perf_counter()
    result = work(*arguments)
    usage = {"cpu_seconds": time.process_time() - start, "seconds": time.perf_counter() - clock}
    return usage | result | {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


if __name__ == "__main__":
    main()
