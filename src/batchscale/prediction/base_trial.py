"""A tuned trial at one batch size, read from records: the start of every predictor that trains."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from batchscale.analysis.intervals import Estimate
from batchscale.analysis.outcomes import trial_outcomes
from batchscale.analysis.results import results_of
from batchscale.errors import AnalysisError, SpecError, one_line
from batchscale.prediction.prediction import Prediction
from batchscale.records.frames import Records, fixed_values
from batchscale.records.metadata.columns import METADATA
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName


@dataclass(frozen=True)
class BaseTrial:
    """A tuned trial at one batch size, which reached the goal.

    Attributes:
        batch_size: In examples.
        parameters: Its metaparameters, searched and fixed.
        seed: Its seed.
        steps: The steps at which it first reached the goal.
        values: The goal's metric by measured step, up to there.
        trial_steps: The steps that were trained to find it; 0 where it was found in existing records.
        trial_id: Its number in its study.
    """

    batch_size: int
    parameters: Mapping[str, float]
    seed: int
    steps: int
    values: Mapping[int, float]
    trial_steps: int
    trial_id: int = 0

    @property
    def examples(self) -> int:
        """The examples of these trained steps."""
        return self.trial_steps * self.batch_size


def base_batch_size(sizes: tuple[int, ...]) -> int:
    """Return the batch size to tune at: a third of the way up, where training is steady and steps still fall.

    >>> base_batch_size((1, 4, 16, 64, 256, 1024)), base_batch_size((8,))
    (4, 8)
    """
    return sizes[(len(sizes) - 1) // 3]


def read_base_trial(records: Records, name: WorkloadName, goal: Goal, batch_size: int, *, paid: bool) -> BaseTrial:
    """Return the trial with the fewest steps to the goal, at the recorded batch size nearest to the wanted one.

    Args:
        records: Of the workload, and perhaps others.
        name: The workload.
        goal: The goal.
        batch_size: The wanted size.
        paid: True if the records were trained for this; otherwise the trial costs nothing.

    Raises:
        SpecError: The workload is not there.
        AnalysisError: No trial of it reached the goal.
    """
    if name not in records.workloads:
        there = ", ".join(map(str, records.workloads)) or "no workload"
        raise SpecError(f"Records with a tuned trial must be of {one_line(name)}. Found {one_line(there)}.")
    selected = records.workload(name)
    outcomes = trial_outcomes(selected, goal)
    trained = int(outcomes.filter(pl.col("last_step") > 0)["last_step"].sum()) if paid else 0
    results = results_of(outcomes).filter(pl.col("steps") > 0)
    if results.is_empty():
        sizes = outcomes["batch_size"].unique().sort().to_list()
        where = f"at batch size {sizes[0]:,}" if len(sizes) == 1 else f"at {len(sizes)} batch sizes"
        raise AnalysisError(f"No trial reached '{goal}' within its budget, out of {len(outcomes):,} {where}.")
    row = min(results.to_dicts(), key=lambda item: abs(math.log(item["batch_size"] / batch_size)))
    size, trial_id = int(row["batch_size"]), int(row["trial_id"])
    fixed = next((values for (*_, of), values in fixed_values(selected).items() if of == size), {})
    searched = {key: row[key] for key in selected.metaparameters if row.get(key) is not None}
    trial = selected.trials.filter((pl.col("batch_size") == size) & (pl.col("trial_id") == trial_id)).to_dicts()[0]
    measured = (
        selected.measurements_of(name)
        .filter((pl.col("batch_size") == size) & (pl.col("trial_id") == trial_id) & (pl.col("step") <= row["steps"]))
        .select("step", goal.metric)
        .drop_nulls()
        .collect()
    )
    seed = (trial[METADATA] or {}).get("seed") or 0
    values = {**fixed, **searched}
    return BaseTrial(size, values, int(seed), int(row["steps"]), dict(measured.rows()), trained, trial_id)


def unresolved(method: str, assumption: str, error: AnalysisError, base: BaseTrial) -> Prediction:
    """Return the prediction of a method that cannot predict, at the cost of the tuned trial that it had."""
    return Prediction(
        method, "critical_batch_size", Estimate(), base.trial_steps, base.examples, assumption, str(error)
    )
