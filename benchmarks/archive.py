"""Import and query the synthetic archive, beside the straightforward pandas way.

    python benchmarks/archive.py --scale 0.1 --work /tmp/archive

Each measurement runs in a process of its own, so that peak memory is its own. The pandas way is what the published
reader does: unpack, then json and read_csv per trial, then concat.
"""

import argparse
import json
import multiprocessing
import resource
import shutil
import tarfile
import time
from collections.abc import Callable
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
    shutil.rmtree(table, ignore_errors=True)
    results: dict[str, Any] = {"archive_bytes": archive.stat().st_size}
    imported = _alone(_import, archive, table)
    results |= {f"import_{key}": value for key, value in imported.items()}
    results["table_bytes"] = sum(path.stat().st_size for path in table.rglob("*") if path.is_file())
    results |= {f"query_{key}": value for key, value in _alone(_query, table).items()}
    if with_pandas:
        shutil.rmtree(tree, ignore_errors=True)
        pandas_import = _alone(_pandas_import, archive, tree)
        results |= {f"pandas_import_{key}": value for key, value in pandas_import.items()}
        results |= {f"pandas_query_{key}": value for key, value in _alone(_pandas_query, tree).items()}
        results["import_speedup"] = results["pandas_import_seconds"] / results["import_seconds"]
        results["query_speedup"] = results["pandas_query_seconds"] / results["query_same_seconds"]
        shutil.rmtree(tree, ignore_errors=True)
    return results


COMPARED = ("mnist", "simple_cnn_base", "nesterov_momentum")


def _import(archive: Path, table: Path) -> dict[str, Any]:
    from batchscale.records import import_records

    start = time.perf_counter()
    summary = import_records(archive, table)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "trials": sum(summary.trials.values()), "measurements": summary.measurements}


def _goal(dataset: str, model: str, optimizer: str) -> Any:
    from batchscale.spec import Goal

    facts = loss_model(dataset, model, optimizer)
    if facts.kind == "language":
        return Goal("val/cross_entropy_error", facts.goal)
    if facts.kind == "average_precision":
        return Goal("val/average_precision", 1 - facts.goal, maximize=True)
    return Goal("val/classification_error", facts.goal)


def _query(table: Path) -> dict[str, Any]:
    """The curve of every workload: each alone, the table opened anew; then all with one open table."""
    from batchscale.analysis.results import steps_to_result
    from batchscale.records import read_records
    from batchscale.spec import WorkloadName

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


def _pandas_import(archive: Path, tree: Path) -> dict[str, Any]:
    start = time.perf_counter()
    with tarfile.open(archive) as tar:
        tar.extractall(tree, filter="data")
    unpacked = time.perf_counter() - start
    rows = 0
    for study in published_studies():
        _, measurements = _pandas_study(tree / ROOT / study.folder)
        rows += len(measurements)
    return {"seconds": time.perf_counter() - start, "unpack_seconds": unpacked, "measurements": rows}


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


def _pandas_query(tree: Path) -> dict[str, Any]:
    """The curve of one workload the published way: every trial of it is read."""
    goal = _goal(*COMPARED)
    start = time.perf_counter()
    curve = {}
    for study in published_studies():
        if (study.dataset, study.model, study.optimizer) != COMPARED:
            continue
        trials, measurements = _pandas_study(tree / ROOT / study.folder)
        complete = trials[trials.status == "COMPLETE"].trial_id.sort_values().head(100)
        reached = measurements[measurements.trial_id.isin(complete) & (measurements[goal.metric] < goal.value)]
        curve[study.batch_size] = reached.step.min()
    return {"seconds": time.perf_counter() - start}


def _alone(work: Callable[..., dict[str, Any]], *arguments: Path) -> dict[str, Any]:
    """The results of a function that runs in a fresh process, with its processor time and peak memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, (work, arguments))


def _measured(work: Callable[..., dict[str, Any]], arguments: tuple[Path, ...]) -> dict[str, Any]:
    start = time.process_time()
    result = work(*arguments)
    usage = {"cpu_seconds": time.process_time() - start}
    return result | usage | {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


if __name__ == "__main__":
    main()
