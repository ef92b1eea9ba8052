"""The common input of predictors: the plan, the folder of their records, and one tuned trial at one batch size.

The tuned trial comes from a small search with the experiment's own space, or from records that exist. Everything that
is trained is stored as records under the folder, so that a repeated command trains nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from batchscale.errors import AnalysisError
from batchscale.prediction.base_trial import BaseTrial, base_batch_size, read_base_trial, unresolved
from batchscale.prediction.prediction import Prediction
from batchscale.records.frames import Records
from batchscale.records.read import read_records
from batchscale.records.tree.read import read_tree
from batchscale.run.loop import RunResult
from batchscale.run.preflight import make_checked_plan
from batchscale.run.session import run_plan
from batchscale.run.settings import RunSettings
from batchscale.run.signals import StopFlag
from batchscale.run.status import RunStatus
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.durations import Spacing
from batchscale.spec.experiment import Experiment, StopRule
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Plan
from batchscale.spec.workload_name import WorkloadName

T = TypeVar("T")

SEARCH = "search"
TRIALS = 8
FINISHERS = 2
MEASURED: dict[str, Any] = {"every": None, "every_tokens": None, "count": 80, "spacing": Spacing.LOG, "start": 0.002}
"""The measured steps of a small search: 80 from 0.2 % of the budget on."""


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
            return read_base_trial(read_records(self.settings.tuned), *self._names, self._wanted_size, paid=False)
        size = self._wanted_size
        experiment = replace(self.small_experiment(), batch_sizes=BatchSizes((size,)))
        return read_base_trial(self.train(experiment, SEARCH), *self._names, size, paid=True)

    @property
    def _names(self) -> tuple[WorkloadName, Goal]:
        return self.plan.experiment.workload.name, self.plan.experiment.goal

    @property
    def _wanted_size(self) -> int:
        return self.settings.batch_size or base_batch_size(self.sizes)

    def small_experiment(self) -> Experiment:
        """Return the experiment with few trials and nothing that only a published curve needs.

        Trials are measured on their whole way, evenly in the logarithm of the step: the goal may be reached early. A
        script of the user's is measured as its experiment says, for it may measure at steps of its own.
        """
        experiment = self.plan.experiment
        measured = MEASURED if experiment.trainer is None else {}
        trials, search = min(experiment.trials, self.settings.trials), experiment.search
        return replace(
            experiment,
            trials=trials,
            stop=StopRule.RACE,
            finishers=min(FINISHERS, trials),
            confirm=0,
            adaptive=None,
            evaluation=replace(experiment.evaluation, **measured),
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


def predict_or_explain(
    preparation: Preparation, method: str, assumption: str, make: Callable[[Preparation, BaseTrial], Prediction]
) -> list[Prediction]:
    """Return what ``make`` predicts from the tuned trial; if it cannot, its reason at the cost of that trial."""
    base = preparation.base
    try:
        return [make(preparation, base)]
    except AnalysisError as error:
        return [unresolved(method, assumption, error, base)]


def _of_sizes(values: Mapping[int | str, T], sizes: set[int]) -> dict[int | str, T]:
    return {key: value for key, value in values.items() if key in sizes}
