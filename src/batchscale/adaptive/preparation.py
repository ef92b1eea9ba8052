"""The common input of predictors: the plan, the folder of their records, and one tuned trial at one batch size.

The tuned trial comes from a small search with the experiment's own space, or from records that exist. Everything that
is trained is stored as records under the folder, so that a repeated command trains nothing.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import polars as pl

from batchscale.analysis.outcomes import trial_outcomes
from batchscale.analysis.results import results_of
from batchscale.errors import AnalysisError, SpecError, one_line
from batchscale.records.frames import Records, fixed_values
from batchscale.records.metadata.columns import METADATA
from batchscale.records.read import read_records
from batchscale.records.tree.read import read_tree
from batchscale.run.loop import RunResult
from batchscale.run.preflight import make_checked_plan
from batchscale.run.session import run_plan
from batchscale.run.settings import RunSettings
from batchscale.run.signals import StopFlag
from batchscale.run.status import RunStatus
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.experiment import Experiment, StopRule
from batchscale.spec.plan import Plan

T = TypeVar("T")

SEARCH = "search"
TRIALS = 8
FINISHERS = 2


@dataclass(frozen=True)
class PredictSettings:
    """The settings of predictions.

    Attributes:
        run: Where and how trials are trained.
        batch_size: The batch size of the tuned trial; None: a small one of the experiment's, see `base_batch_size`.
        trials: The trials of the small searches, at most.
        tuned: Records of the same workload whose best trial is used instead of a search; None: search.
    """

    run: RunSettings = field(default_factory=RunSettings)
    batch_size: int | None = None
    trials: int = TRIALS
    tuned: Path | None = None


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
    """

    batch_size: int
    parameters: Mapping[str, float]
    seed: int
    steps: int
    values: Mapping[int, float]
    trial_steps: int

    @property
    def examples(self) -> int:
        """The examples of these trained steps."""
        return self.trial_steps * self.batch_size


@dataclass(frozen=True)
class Preparation:
    """The input of every method."""

    plan: Plan
    folder: Path
    settings: PredictSettings
    show: Callable[[RunStatus], None] = lambda _status: None
    stop: StopFlag | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The batch sizes of the experiment, growing."""
        return tuple(study.batch_size for study in self.plan.studies)

    @cached_property
    def base(self) -> BaseTrial:
        """The tuned trial.

        Raises:
            AnalysisError: No trial reached the goal.
        """
        if self.settings.tuned is not None:
            return read_base_trial(read_records(self.settings.tuned), self.plan, self._wanted_size, paid=False)
        size = self._wanted_size
        experiment = replace(self.small_experiment(), batch_sizes=BatchSizes((size,)))
        return read_base_trial(self.train(experiment, SEARCH), self.plan, size, paid=True)

    @property
    def _wanted_size(self) -> int:
        return self.settings.batch_size or base_batch_size(self.sizes)

    def small_experiment(self) -> Experiment:
        """Return the experiment with few trials and nothing that only a published curve needs."""
        experiment = self.plan.experiment
        trials, search = min(experiment.trials, self.settings.trials), experiment.search
        return replace(
            experiment,
            trials=trials,
            stop=StopRule.RACE,
            finishers=min(FINISHERS, trials),
            confirm=0,
            search=replace(search, repeats=min(search.repeats, 1), max_attempts=None),
        )

    def train(self, experiment: Experiment, name: str) -> Records:
        """Train an experiment into a folder of this preparation, or continue it, and return its records.

        Raises:
            KeyboardInterrupt: The run was stopped; the same call continues it.
        """
        sizes = set(experiment.batch_sizes.sizes)
        experiment = replace(
            experiment,
            budget=replace(experiment.budget, per_batch_size=_of_sizes(experiment.budget.per_batch_size, sizes)),
            search=replace(experiment.search, per_batch_size=_of_sizes(experiment.search.per_batch_size, sizes)),
        )
        plan = make_checked_plan(experiment, self.settings.run.data_dir)
        outcome = run_plan(plan, self.folder / name, self.settings.run, self.show, self.stop)
        if outcome.result is RunResult.STOPPED:
            raise KeyboardInterrupt
        return read_tree(self.folder / name)


def _of_sizes(values: Mapping[int | str, T], sizes: set[int]) -> dict[int | str, T]:
    return {key: value for key, value in values.items() if key in sizes}


def base_batch_size(sizes: tuple[int, ...]) -> int:
    """Return the batch size to tune at: a third of the way up, where training is steady and steps still fall.

    >>> base_batch_size((1, 4, 16, 64, 256, 1024)), base_batch_size((8,))
    (4, 8)
    """
    return sizes[(len(sizes) - 1) // 3]


def read_base_trial(records: Records, plan: Plan, batch_size: int, *, paid: bool) -> BaseTrial:
    """Return the trial with the fewest steps to the goal, at the recorded batch size nearest to the wanted one.

    Args:
        records: Of the plan's workload.
        plan: The plan, for its goal.
        batch_size: The wanted size.
        paid: True if the records were trained for this; otherwise the trial costs nothing.

    Raises:
        AnalysisError: The workload is not there, or no trial of it reached the goal.
    """
    name, goal = plan.experiment.workload.name, plan.experiment.goal
    if name not in records.workloads:
        raise SpecError(
            f"--tuned must hold records of {one_line(name)}. Found {one_line(', '.join(map(str, records.workloads)))}."
        )
    selected = records.workload(name)
    outcomes = trial_outcomes(selected, goal)
    trained = int(outcomes.filter(pl.col("last_step") > 0)["last_step"].sum()) if paid else 0
    results = results_of(outcomes).filter(pl.col("steps") > 0)
    if results.is_empty():
        trials = len(outcomes)
        raise AnalysisError(
            f"No trial reached '{goal}' within its budget, out of {trials:,} at batch size {batch_size:,}."
        )
    row = min(results.to_dicts(), key=lambda item: abs(math.log(item["batch_size"] / batch_size)))
    size, trial_id = int(row["batch_size"]), int(row["trial_id"])
    fixed = next((values for (*_, of), values in fixed_values(selected).items() if of == size), {})
    searched = {name: row[name] for name in selected.metaparameters if row.get(name) is not None}
    trial = selected.trials.filter((pl.col("batch_size") == size) & (pl.col("trial_id") == trial_id)).to_dicts()[0]
    measured = (
        selected.measurements_of(name)
        .filter((pl.col("batch_size") == size) & (pl.col("trial_id") == trial_id) & (pl.col("step") <= row["steps"]))
        .select("step", goal.metric)
        .drop_nulls()
        .collect()
    )
    seed = (trial[METADATA] or {}).get("seed") or 0
    return BaseTrial(size, {**fixed, **searched}, int(seed), int(row["steps"]), dict(measured.rows()), trained)
