"""The progress of an adaptive experiment, read from its records: points, noise, costs, winners, and rounds so far.

The next round is decided from these values alone. None of them depends on the order in which trials were trained, nor
on how often the run was stopped, except costs in seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from batchscale.analysis.confirmation import confirmed_noise, find_confirmations
from batchscale.analysis.curve_analysis import Analysis, analyze
from batchscale.analysis.noise import Noise, trial_noise
from batchscale.errors import AnalysisError, RecordsError
from batchscale.planning.step_times import records_step_times
from batchscale.prediction.next_round import MeasuredSize, RoundProgress
from batchscale.records.frames import Records
from batchscale.records.metadata.columns import METADATA, stored_choices
from batchscale.records.tree.layout import StudyPaths
from batchscale.records.tree.read import read_tree
from batchscale.spec.adaptive import CostUnit, RoundChoice
from batchscale.spec.experiment import Experiment


@dataclass(frozen=True, eq=False)
class ReadProgress:
    """The rounds so far, what they measured (None before the first), and what next ones need.

    ``winners`` are the metaparameters of the best trial by batch size. ``step_time`` has the seconds of a step without
    and per example; None where no trial stored its time.
    """

    choices: tuple[RoundChoice, ...] = ()
    progress: RoundProgress | None = None
    winners: Mapping[int, Mapping[str, float]] | None = None
    step_time: tuple[float, float] | None = None


def read_progress(root: Path, experiment: Experiment, sizes: tuple[int, ...]) -> ReadProgress:
    """Return the progress of an experiment that may measure these batch sizes, from the records at ``root``.

    Raises:
        RecordsError: the records cannot be read.
    """
    assert experiment.adaptive is not None
    name = experiment.workload.name
    if not any(StudyPaths.of(root, name, size).study_file.exists() for size in sizes):
        return ReadProgress()
    records = read_tree(root).workload(name).filter(batch_size=list(sizes))
    choices = stored_choices(records.studies)
    if not choices:
        raise RecordsError(
            f"{root}: the records must be those of an adaptive experiment. Found studies of a fixed one, whose sizes "
            'were not chosen; give another --out, or list batch_sizes and trials instead of "auto".'
        )
    analysis = _analyze(records, experiment)
    steps = {} if analysis is None else _steps_by_size(analysis)
    costs = study_costs(records, experiment.adaptive.unit)
    measured = tuple(MeasuredSize(size, steps.get(size), costs.get(size, 0.0)) for size in _measured_sizes(choices))
    points = () if analysis is None else analysis.points
    trials = max(choice.trials for choice in choices)
    progress = RoundProgress(measured, _noise(records, experiment, analysis), points, trials, choices[-1].round)
    winners = {} if analysis is None else _winners(analysis)
    return ReadProgress(choices, progress, winners, read_step_time(records, experiment))


def study_costs(records: Records, unit: CostUnit) -> dict[int, float]:
    """Return the cost of all trials of each study, in a unit."""
    seconds = pl.col(METADATA).struct.field("total_s").fill_null(0.0)
    amounts = {
        CostUnit.TRIAL_STEPS: pl.col("steps"),
        CostUnit.EXAMPLES: pl.col("steps") * pl.col("batch_size"),
        CostUnit.SECONDS: seconds,
    }
    summed = records.trials.group_by("batch_size").agg(amounts[unit].sum().cast(pl.Float64).alias("cost"))
    return {int(size): float(cost) for size, cost in summed.rows()}


def read_step_time(records: Records, experiment: Experiment) -> tuple[float, float] | None:
    """Return the seconds of a step without and per example, by least squares of relative errors over batch sizes.

    The times are those of trials alone on a device; where all were trained together, their share of the device's time.
    """
    times = {time.batch_size: time.step_time_s for time in records_step_times(records, experiment.workload.name)}
    if len(times) < 2:
        steps, seconds = (study_costs(records, unit) for unit in (CostUnit.TRIAL_STEPS, CostUnit.SECONDS))
        times = {size: seconds[size] / steps[size] for size in steps if steps[size] > 0 and seconds.get(size, 0) > 0}
    if not times:
        return None
    sizes, measured = np.array(list(times), dtype=np.float64), np.array(list(times.values()))
    columns = np.stack([1 / measured, sizes / measured], axis=1)
    fixed, per_example = np.linalg.lstsq(columns, np.ones(len(sizes)), rcond=None)[0].tolist()
    if len(times) == 1 or fixed < 0 or per_example < 0:  # time in proportion to the size, or none at all
        per_example = float((1 / (sizes / measured)).mean()) if per_example > 0 or len(times) == 1 else 0.0
        fixed = 0.0 if per_example > 0 else float(measured.mean())
    return fixed, per_example


def _analyze(records: Records, experiment: Experiment) -> Analysis | None:
    try:
        return analyze(records, experiment.workload.name, experiment.goal)
    except AnalysisError:  # no trial is COMPLETE
        return None


def _steps_by_size(analysis: Analysis) -> dict[int, float]:
    reached = analysis.curve.filter(pl.col("steps") > 0).select("batch_size", "steps")
    return {int(size): float(steps) for size, steps in reached.rows()}


def _measured_sizes(choices: tuple[RoundChoice, ...]) -> tuple[int, ...]:
    return tuple(sorted({size for choice in choices for size in choice.sizes}))


def _noise(records: Records, experiment: Experiment, analysis: Analysis | None) -> Noise:
    """Return the noise that the analysis uses: that of new seeds where all sizes were confirmed, else of trials."""
    points = () if analysis is None else analysis.points
    confirmations = find_confirmations(records, experiment.goal) if experiment.confirm and points else {}
    if confirmations and all(point.batch_size in confirmations for point in points):
        return confirmed_noise([confirmations[point.batch_size] for point in points])
    return trial_noise(points)


def _winners(analysis: Analysis) -> dict[int, dict[str, float]]:
    from batchscale.analysis.curve_analysis import ANALYSIS_SCHEMA

    names = [name for name in analysis.curve.columns if name not in ANALYSIS_SCHEMA]
    rows = analysis.curve.drop_nulls("steps").select("batch_size", *names).iter_rows(named=True)
    return {row["batch_size"]: {name: row[name] for name in names if row[name] is not None} for row in rows}
