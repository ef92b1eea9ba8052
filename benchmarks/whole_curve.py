"""A whole curve beside PyTorch with Optuna: the same search, race and evaluations, in two processes each.

    python benchmarks/whole_curve.py [EXPERIMENT] --torch-python build/trainers/bin/python [--rounds 3] [--out FILE]
                                     [--before CHECKOUT]

Rounds alternate: ours with an empty cache of compiled programs, ours again with the cache of that run, both with an
older version, the peer. The time is that of the whole command, from its start to its last record. The experiment must
be a race of a fully connected network; without one, that of the quickstart. The peer needs torch, optuna and scipy.
``whole_curve_parts.py`` says where the seconds of ours go.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from batchscale import read
from batchscale.run.preflight import make_checked_plan
from batchscale.spec.file import read_experiment
from batchscale.spec.plan import Plan
from batchscale.workloads.registry import get_workload

HERE = Path(__file__).parent
QUICKSTART = HERE.parent / "src/batchscale/cli/quickstart_files/digits.toml"
CORES = "2"


def describe(plan: Plan, data: Path) -> dict[str, Any]:
    """The search as the peer reads it; the examples go to a file."""
    experiment = plan.experiment
    if experiment.workload.model_options.get("dropout") != 0:
        sys.exit("The peer has no dropout: the experiment needs model_options = { dropout = 0.0 }.")
    workload = get_workload(experiment.workload, None)
    arrays = {}
    for split in ("train", "val"):
        stored = workload.dataset.splits[split].arrays
        prepared = workload.dataset.prepare(stored)
        arrays[f"{split}_inputs"] = np.asarray(prepared["inputs"], np.float32).reshape(len(prepared["inputs"]), -1)
        arrays[f"{split}_labels"] = np.asarray(prepared["labels"], np.int64)
    np.savez(data, **arrays)
    return {
        "data": str(data),
        "widths": [int(width) for width in re.findall(r"_(\d+)", experiment.workload.name.model)],
        "nesterov": "nesterov" in experiment.workload.name.optimizer,
        "metric": experiment.goal.metric.split("/")[1],
        "target": experiment.goal.value,
        "finishers": experiment.finishers,
        "confirm": experiment.confirm,
        "confirm_best": experiment.confirm_best,
        "seed": experiment.seed,
        "studies": [
            {
                "batch_size": study.batch_size,
                "steps": list(study.evaluation_steps),
                "trials": study.trials,
                "fixed": dict(study.fixed),
                "space": {
                    item.name: [item.min_value, item.max_value, item.scale.value] for item in study.space.parameters
                },
            }
            for study in plan.studies
        ],
    }


def run_ours(experiment: Path, folder: Path, cache: Path, checkout: Path = HERE.parent) -> dict[str, Any]:
    """Seconds of a run with this cache by the version in this checkout, and what it trained."""
    words = [sys.executable, "-m", "batchscale", "run", str(experiment), "--out", str(folder), "--workers", CORES]
    began = time.perf_counter()
    environment = {**os.environ, "BATCHSCALE_CACHE": str(cache), "PYTHONPATH": str(checkout / "src")}
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment)
    seconds = time.perf_counter() - began
    records = read(folder)
    (name,) = records.workloads
    measured = records.measurements_of(name).filter(pl.col("step") > 0).collect()
    last = measured.group_by("batch_size", "trial_id").agg(pl.col("step").max())
    return {
        "seconds": seconds,
        "trials": len(records.trials),
        "steps": int(last["step"].sum()),
        "evaluations": len(measured),
    }


def run_peer(python: str, job: Path) -> dict[str, Any]:
    """Seconds of the peer's command, and what it trained."""
    began = time.perf_counter()
    words = [python, str(HERE / "whole_curve_torch.py"), str(job), CORES]
    answer = subprocess.run(
        words, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    return {"seconds": time.perf_counter() - began, **json.loads(answer.stdout)}


def main() -> None:
    """Alternate the three, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path, nargs="?", default=QUICKSTART)
    parser.add_argument("--torch-python", required=True, help="the interpreter that has PyTorch and Optuna")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write all rounds to this JSON file")
    parser.add_argument("--before", type=Path, help="a checkout of an older version, to be measured too")
    given = parser.parse_args()
    versions = {"": HERE.parent} | ({} if given.before is None else {"before, ": given.before.resolve()})
    names = [f"{version}{kind}" for version in versions for kind in ("empty cache", "filled cache")]
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in (*names, "PyTorch and Optuna")}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        job = folder / "job.json"
        plan = make_checked_plan(read_experiment(given.experiment), None)
        job.write_text(json.dumps(describe(plan, folder / "data.npz")))
        for number in range(given.rounds):
            for version, checkout in versions.items():
                place = folder / f"{version}{number}"
                for kind in ("empty cache", "filled cache"):
                    run = run_ours(given.experiment, place / kind, place / "cache", checkout)
                    rows[f"{version}{kind}"].append(run)
            rows["PyTorch and Optuna"].append(run_peer(given.torch_python, job))
            print({name: round(row[-1]["seconds"], 1) for name, row in rows.items()}, file=sys.stderr)
    peer = statistics.median(row["seconds"] for row in rows["PyTorch and Optuna"])
    print("\n| | seconds, median (least to most) | × peer | trials | steps | evaluations |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, values in rows.items():
        seconds = sorted(row["seconds"] for row in values)
        middle, last = statistics.median(seconds), values[-1]
        print(f"| {name} | {middle:.1f} ({seconds[0]:.1f} to {seconds[-1]:.1f}) | {peer / middle:.1f} | "
              f"{last['trials']:,} | {last['steps']:,} | {last['evaluations']:,} |")  # fmt: skip
    if given.out:
        given.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
