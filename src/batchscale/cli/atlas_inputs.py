"""The curves that ``batchscale atlas`` takes from a user: records, an experiment file, or a CSV file."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.errors import AnalysisError, BatchscaleError, one_line

if TYPE_CHECKING:
    import polars as pl

    from batchscale.analysis.curve_analysis import Analysis
    from batchscale.atlas.curve import AtlasCurve
    from batchscale.atlas.similar import OwnCurve
    from batchscale.records.frames import Records
    from batchscale.spec.goal import Goal
    from batchscale.spec.workload_name import WorkloadName


@dataclass(frozen=True)
class OwnNames:
    """The names that a user gives to a curve; empty ones are taken from the records."""

    name: str | None = None
    data: str = ""
    model: str = ""
    optimizer: str = ""
    kind: str = ""
    parameters: int | None = None


def read_one(path: Path, workload: str | None, goal: str | None, kind: str) -> "tuple[str, OwnCurve, Analysis | None]":
    """Return the name, the curve and its analysis (None for an experiment file) of one workload."""
    from batchscale.analysis.curve_analysis import analyze, analyze_points
    from batchscale.atlas.curve import model_kind
    from batchscale.atlas.similar import OwnCurve
    from batchscale.cli.selection import open_records, select_workloads

    if _is_file(path, ".csv"):
        answer = analyze_points(read_runs(path))
        if answer.summary is None:
            raise AnalysisError(f"{one_line(path, 300)}: {answer.refusal}")
        return path.name, OwnCurve(kind=kind, summary=answer.summary), answer
    if _is_file(path, ".toml"):
        from batchscale.spec.file import read_experiment

        name = read_experiment(path).workload.name
        return str(name), OwnCurve(name.dataset, name.model, name.optimizer, kind or model_kind(name.model)), None
    records = open_records(path)
    names = select_workloads(records, workload)
    if len(names) > 1:
        listed = ", ".join(str(name) for name in names[:6])
        raise AnalysisError(f"--workload must select one workload. Found {len(names)} ({listed}).")
    name = names[0]
    answer = analyze(records, name, choose_goal(records, name, goal))
    own = OwnCurve(name.dataset, name.model, name.optimizer, kind or model_kind(name.model), answer.summary)
    return str(name), own, answer


def read_curves(
    path: Path, workload: str | None, goal: str | None, names: OwnNames
) -> "list[tuple[AtlasCurve, Analysis]]":
    """Return the curves of a file or of all selected workloads of records, each with its analysis.

    Raises:
        AnalysisError: There is none with two batch sizes that reached the goal.
    """
    from batchscale.analysis.curve_analysis import analyze, analyze_points
    from batchscale.atlas.curve import AtlasCurve, model_kind
    from batchscale.cli.selection import open_records, print_notice, select_workloads

    if _is_file(path, ".csv"):
        rows = read_runs(path)
        answer = analyze_points(rows)
        if answer.summary is None:
            raise AnalysisError(f"{one_line(path, 300)}: {answer.refusal}")
        label = f"{names.model or path.stem}{f' on {names.data}' if names.data else ''}"
        runs = [(int(size), steps) for size, steps in rows.select("batch_size", "steps").rows()]
        kind = names.kind or model_kind(names.model)
        curve = AtlasCurve(
            names.name or _identifier(path.stem), "own", label, kind, names.data, names.model, names.optimizer,
            goal or "", runs, parameters=names.parameters,
        )  # fmt: skip
        return [(curve, answer)]
    records = open_records(path)
    selected = select_workloads(records, workload)
    curves = []
    for name in selected:
        try:
            answer = analyze(records, name, choose_goal(records, name, goal))
            if answer.summary is None:
                raise AnalysisError(answer.refusal or "there are too few points")
        except BatchscaleError as error:
            if len(selected) == 1:
                raise
            print_notice(f"{name} is left out: {one_line(error, 300)}")
            continue
        runs = [
            (int(size), steps and float(steps)) for size, steps in answer.curve.select("batch_size", "steps").rows()
        ]
        identifier = names.name if names.name and len(selected) == 1 else _identifier(str(name), names.name or "own")
        curves.append(
            (
                AtlasCurve(
                    identifier, "own", f"{name.model} on {name.dataset}", names.kind or model_kind(name.model),
                    name.dataset, name.model, name.optimizer, str(answer.goal), runs, parameters=names.parameters,
                    batch_unit="examples" if answer.unit.tokens_per_example is None else "sequences",
                    sequence=answer.unit.tokens_per_example,
                ),
                answer,
            )
        )  # fmt: skip
    if not curves:
        raise AnalysisError(f"{one_line(path, 300)}: there must be a workload with a curve. Found none.")
    return curves


def read_runs(path: Path) -> "pl.DataFrame":
    """Return the rows of a curve file; a run whose column ``reached`` (or ``reached_goal``) is false has no steps."""
    import polars as pl

    from batchscale.analysis.curves import read_curve
    from batchscale.planning.csv_rows import read_csv_rows
    from batchscale.planning.runs import read_runs as read_finished_runs
    from batchscale.planning.step_times import COLUMN_ALIASES

    rows = read_curve(path)
    if "reached" not in read_csv_rows(path, "a curve", ("batch_size", "steps"), COLUMN_ALIASES).columns:
        return rows
    runs = [(run.batch_size, run.steps if run.reached else None) for run in read_finished_runs(path).runs]
    return pl.DataFrame(runs, schema={"batch_size": pl.Float64, "steps": pl.Float64}, orient="row").sort("batch_size")


def choose_goal(records: "Records", workload: "WorkloadName", goal: str | None) -> "Goal":
    """Return the goal: as given, that of the studies, or of the paper's figures for a workload of its archive."""
    from batchscale.analysis.curve_analysis import stored_goal
    from batchscale.cli.selection import select_goal

    if goal is None and stored_goal(records, workload) is None:
        from batchscale.figures import paper_curves

        figures = (paper_curves.figure_1(), paper_curves.figure_3(), paper_curves.figure_6())
        for series in (series for panels in figures for panel in panels for series in panel.series):
            if series.workload == workload:
                return series.goal
    return select_goal(records, workload, goal)


def _is_file(path: Path, suffix: str) -> bool:
    return path.suffix.lower() == suffix and not path.is_dir()


def _identifier(text: str, prefix: str = "own") -> str:
    return f"{prefix}-{re.sub(r'[^A-Za-z0-9._-]+', '-', text).strip('-._')}"[:120]
