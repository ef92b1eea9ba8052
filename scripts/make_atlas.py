"""Make the table of the atlas again: src/batchscale/atlas/data, from a folder of public measurements.

    python scripts/make_atlas.py --data path/to/public_curves

The folder has mlperf_rcp_runs.csv, zeus_summary_train.csv, steplaw_runs.csv and nqs_runs.csv; paper_curves.csv and
ddsp_training_runs.csv lie beside it. The records of our own reproduction are those of examples/. Every curve is
analysed by batchscale; sources and licences stand in src/batchscale/atlas/sources.py.
"""

import argparse
import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl

from batchscale.analysis.curve_analysis import Analysis, analyze, stored_goal
from batchscale.atlas.curve import CURVES_SCHEMA, FEWEST_SIZES, RUNS_SCHEMA, AtlasCurve, model_kind, summary_row
from batchscale.atlas.public_files import public_curves, step_law_grid
from batchscale.atlas.table import choose_main
from batchscale.figures.names import workload_label
from batchscale.records.read import read_records
from batchscale.spec.workload_name import WorkloadName

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "src" / "batchscale" / "atlas" / "data"


def main() -> None:
    """Write curves.csv, runs.csv.gz and grid.csv.gz."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of public measurements")
    data = parser.parse_args().data
    sizes = _workload_sizes()
    curves = [_with_sizes(curve, sizes) for curve in public_curves(data) if curve.num_sizes >= FEWEST_SIZES]
    answers = [(curve, curve.analyze()) for curve in curves]
    answers += [(_with_sizes(curve, sizes), answer) for curve, answer in _reproduction()]
    rows = [curve.metadata() | summary_row(curve, answer) for curve, answer in answers]
    table = choose_main(pl.DataFrame(rows, schema=CURVES_SCHEMA))
    runs = [(curve.curve, size, amount) for curve, _ in answers for size, amount in curve.runs]
    TABLE.mkdir(parents=True, exist_ok=True)
    table.write_csv(TABLE / "curves.csv")
    _write(TABLE / "runs.csv.gz", pl.DataFrame(runs, schema=RUNS_SCHEMA, orient="row"))
    _write(TABLE / "grid.csv.gz", step_law_grid(data / "steplaw_runs.csv"))
    print(f"{len(table)} curves of {table['source'].n_unique()} sources, {len(runs):,} runs")
    print(table.group_by("source", maintain_order=True).agg(pl.len(), pl.col("main").sum(), pl.col("b_crit").count()))


def _write(path: Path, frame: pl.DataFrame) -> None:
    """Write a compressed CSV file without a time stamp: the same data give the same bytes."""
    path.write_bytes(gzip.compress(frame.write_csv().encode(), mtime=0))


def _workload_sizes() -> dict[str, tuple[int | None, int | None]]:
    """Parameters and training examples of the paper's workloads, as our declarations have them."""
    words = [sys.executable, "-m", "batchscale", "workloads", "--json"]
    listed = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["workloads"]
    return {item["name"]: (item["num_parameters"], item["num_train_examples"]) for item in listed}


def _with_sizes(curve: AtlasCurve, sizes: dict[str, tuple[int | None, int | None]]) -> AtlasCurve:
    if curve.source not in ("paper", "batchscale"):
        return curve
    name = WorkloadName(curve.dataset, curve.model, curve.optimizer)
    parameters, examples = sizes.get(str(name), (None, None))
    label = workload_label(name).rpartition(" (")[0]
    return replace(curve, label=label, kind=model_kind(curve.model), parameters=parameters, examples=examples)


def _reproduction() -> Iterator[tuple[AtlasCurve, Analysis]]:
    records = read_records(ROOT / "examples" / "mnist_fc_records")
    for name in records.workloads:
        goal = stored_goal(records, name)
        assert goal is not None
        answer = analyze(records, name, goal)
        runs = answer.curve.select("batch_size", pl.col("steps").cast(pl.Float64)).rows()
        yield (
            AtlasCurve(
                f"batchscale-{name.model}-{name.optimizer}", "batchscale", "", "", name.dataset, name.model,
                name.optimizer, str(goal), runs,
            ),
            answer,
        )  # fmt: skip


if __name__ == "__main__":
    main()
