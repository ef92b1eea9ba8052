"""The inputs of ``batchscale law``: a grid of runs, several curves, or the carried grid."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.errors import AnalysisError, SpecError, one_line

if TYPE_CHECKING:
    import polars as pl

    from batchscale.analysis.laws import LawCurve, Laws

CARRIED = "the public runs of Step Law (Li et al. 2025, by ScaleBench, CC-BY-4.0)"


def read_laws(
    inputs: Sequence[Path],
    sequence: int | None = None,
    parameters: Sequence[float] | None = None,
    workload: str | None = None,
    goal: str | None = None,
) -> "tuple[str, Laws, pl.DataFrame | None]":
    """Return the source in words, the laws, and the grid of runs (None for curves).

    Args:
        inputs: One grid of runs, several curves, or nothing for the carried grid.
        sequence: Tokens of a sequence, where batch sizes count sequences.
        parameters: Of the models of several curves, in their order.
        workload: Selects workloads of records.
        goal: Their goal.
    """
    from batchscale.analysis.grid import is_grid_file, read_grid
    from batchscale.analysis.laws import curve_laws, grid_laws

    if not inputs:
        from batchscale.atlas.table import read_step_law

        grid = read_step_law()
        return CARRIED, grid_laws(grid), grid
    if any(is_grid_file(path) for path in inputs):
        import polars as pl

        grid = pl.concat([read_grid(path, sequence) for path in inputs])
        return ", ".join(one_line(path.name, 100) for path in inputs), grid_laws(grid), grid
    curves = [curve for path in inputs for curve in read_curves(path, sequence, workload, goal)]
    if parameters is not None:
        curves = _with_parameters(curves, parameters)
    in_tokens = all(sequence or curve.answer.unit.tokens_per_example for curve in curves)
    laws = curve_laws(curves, "tokens" if in_tokens else "examples")
    if not laws.laws:
        raise AnalysisError(
            f"Several curves must show a law of one quantity at least. Found {len(curves)}. "
            + " ".join(laws.refusals.values())
        )
    return f"{len(curves)} curves", laws, None


def read_curves(path: Path, sequence: int | None, workload: str | None, goal: str | None) -> "list[LawCurve]":
    """Return the curve of a CSV file, or of each selected workload of records.

    Examples become tokens by ``sequence``, else by what the records say, else they count as they are.
    """
    from batchscale.analysis.curve_analysis import analyze, analyze_points
    from batchscale.analysis.laws import LawCurve
    from batchscale.cli.atlas_inputs import choose_goal, read_runs
    from batchscale.cli.selection import open_records, select_workloads

    if path.suffix.lower() == ".csv" and not path.is_dir():
        answer = analyze_points(read_runs(path))
        if answer.summary is None:
            raise AnalysisError(f"{one_line(path, 300)}: {answer.refusal}")
        return [LawCurve(path.stem, answer, per_example=float(sequence or 1))]
    records = open_records(path)
    names = select_workloads(records, workload)
    curves = []
    for name in names:
        answer = analyze(records, name, choose_goal(records, name, goal))
        scale = float(sequence or answer.unit.tokens_per_example or 1)
        curves.append(LawCurve(f"{path.name}:{name}", answer, per_example=scale))
    return curves


def _with_parameters(curves: "list[LawCurve]", parameters: Sequence[float]) -> "list[LawCurve]":
    from dataclasses import replace

    if len(parameters) != len(curves):
        raise SpecError(
            f"--model-parameters must have one number for each curve. Found {len(parameters)} for {len(curves)} curves "
            f"({', '.join(one_line(curve.name, 60) for curve in curves[:6])})."
        )
    return [replace(curve, parameters=size) for curve, size in zip(curves, parameters, strict=True)]
