"""The experiment: a workload at several batch sizes, with a goal and budgets; what one TOML file says.

Owns the frozen values that all of MEASURE passes around. Reading the file is in ``file``; turning an experiment
into studies, once the facts of its workload are known, is in ``plan``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from typing_extensions import TypeAliasType

from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.durations import Budget, EvaluationPlan, Unit
from batchscale.spec.goal import Goal
from batchscale.spec.slurm import SlurmOptions
from batchscale.spec.space import SearchSpace
from batchscale.spec.trainer import TrainerSpec
from batchscale.spec.workload_name import WorkloadName

Option = TypeAliasType("Option", "bool | int | float | str | tuple[Option, ...]")
"""A named alias: one that holds itself has no end for whoever checks values by it."""

Options = Mapping[str, Option]
DEFAULT_FILE_TIMEOUT_S = 600.0


class StopRule(StrEnum):
    """When a trial ends before it diverges.

    ``budget``: at its step budget. ``goal``: at its first measurement that reaches the goal. ``race``: as soon as it
    cannot be the first to reach the goal any more, which loses nothing of the steps to result.
    """

    BUDGET = "budget"
    GOAL = "goal"
    RACE = "race"


class Algorithm(StrEnum):
    """The low-discrepancy sequence that a search draws its points from."""

    HALTON = "halton"
    SOBOL = "sobol"


@dataclass(frozen=True)
class WorkloadSpec:
    """The workload of an experiment with the options of each part.

    ``schedule`` names the learning rate schedule; ``file`` a Python file that registers a workload of the user's own,
    which may take ``file_timeout_s`` to be loaded and checked.
    """

    name: WorkloadName
    dataset_options: Options = field(default_factory=dict)
    model_options: Options = field(default_factory=dict)
    optimizer_options: Options = field(default_factory=dict)
    schedule: str | None = None
    file: Path | None = None
    file_timeout_s: float = DEFAULT_FILE_TIMEOUT_S


@dataclass(frozen=True)
class SearchPlan:
    """How metaparameters are searched.

    ``space`` replaces ranges of the workload's default space by name; ``fixed`` holds metaparameters at a value
    instead of searching them; ``per_batch_size`` replaces ranges at single batch sizes. ``paired`` uses the same
    unit points at every batch size. ``repeats`` is how often a study may be searched again in a moved space, and
    ``max_attempts`` how many trials a search may start to get its non-divergent ones.
    """

    algorithm: Algorithm = Algorithm.HALTON
    paired: bool = False
    space: SearchSpace = field(default_factory=SearchSpace)
    fixed: Mapping[str, float] = field(default_factory=dict)
    per_batch_size: Mapping[int, SearchSpace] = field(default_factory=dict)
    edge_margin: float = 0.05
    repeats: int = 2
    max_attempts: int | None = None


@dataclass(frozen=True)
class RayPlan:
    """What a worker takes of its node on a Ray cluster; None is settled when the cluster is seen.

    ``resources`` are amounts of what nodes declare, by name. ``checkpoints`` is a remote path that keeps the states of
    running trials, in place of a folder that all nodes see. A node without the data takes it from ``data_from``.
    """

    num_cpus: float | None = None
    num_gpus: float | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    checkpoints: str | None = None
    data_from: str | None = None


@dataclass(frozen=True)
class RunPlan:
    """What each trial is trained on: so many devices of a host (None: all). Changes no result, up to rounding.

    ``exact`` adds gradients in an order that does not depend on the devices. ``hosts_per_trial`` is how many hosts of a
    cluster train a trial together (None: all). ``slurm`` is what workers ask of SLURM, ``ray`` what they take of nodes.
    """

    devices_per_trial: int | None = 1
    exact: bool = False
    hosts_per_trial: int | None = None
    slurm: SlurmOptions = field(default_factory=SlurmOptions)
    ray: RayPlan = field(default_factory=RayPlan)


DEFAULT_BATCH_SIZES = BatchSizes(tuple(2**power for power in range(11)))
DEFAULT_BUDGET = Budget(amount=30, unit=Unit.EPOCHS, at_least_steps=1000)


@dataclass(frozen=True)
class Experiment:
    """Everything an experiment file says. ``trials`` counts the NON-DIVERGENT ones of each search.

    ``finishers`` is how many trials must have reached the goal before a race ends; more than one gives the analysis
    the runners-up that it needs for intervals. ``trainer`` is the script that trains in place of our engine.
    ``source`` and ``text`` are the file that it was read from, if any.
    """

    workload: WorkloadSpec
    goal: Goal
    batch_sizes: BatchSizes = DEFAULT_BATCH_SIZES
    trials: int = 100
    budget: Budget = DEFAULT_BUDGET
    evaluation: EvaluationPlan = field(default_factory=EvaluationPlan)
    stop: StopRule = StopRule.RACE
    finishers: int = 1
    search: SearchPlan = field(default_factory=SearchPlan)
    seed: int = 0
    metrics: tuple[str, ...] | None = None
    source: str = "experiment.toml"
    text: str | None = None
    trainer: TrainerSpec | None = None
    run: RunPlan = field(default_factory=RunPlan)

    def evaluation_steps(self, train_steps: int) -> tuple[int, ...]:
        """The steps at which a trial of this budget is measured; a trainer's script has trained before it measures."""
        steps = self.evaluation.steps(train_steps)
        return steps if self.trainer is None else steps[1:]
