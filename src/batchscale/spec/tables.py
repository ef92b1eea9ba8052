"""The tables and keys of an experiment file, typed: what may be written, and its default.

Owns the shape of the file only. What the text of a goal, a range of batch sizes or a search space means belongs to
the values themselves; ``file`` turns these tables into an Experiment.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from batchscale.spec.durations import MAX_STEPS
from batchscale.spec.experiment import Algorithm, StopRule

Name = Annotated[str, Field(min_length=1, max_length=500)]
Steps = Annotated[int, Field(ge=1, le=MAX_STEPS)]
ExampleCount = Annotated[int, Field(ge=0, le=2**40)] | Literal["all"]
SpaceTable = dict[str, dict[str, Any]]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class WorkloadTable(_Table):
    """``[workload]``: what is trained."""

    dataset: Name
    model: Name
    optimizer: Name
    schedule: Name | None = None
    file: Name | None = None
    dataset_options: dict[str, Any] = {}
    model_options: dict[str, Any] = {}
    optimizer_options: dict[str, Any] = {}


class BudgetTable(_Table):
    """``[budget]``: the longest a trial may train; one of steps, examples and epochs."""

    steps: Steps | None = None
    examples: Steps | None = None
    epochs: Annotated[float, Field(gt=0, strict=False)] | None = None
    at_least_steps: Steps | None = None
    per_batch_size: dict[str, Annotated[float, Field(gt=0, strict=False)]] = {}


class ExamplesTable(_Table):
    """``[evaluation] examples``: how many examples of each split are measured."""

    train: ExampleCount = 1000
    val: ExampleCount = "all"
    test: ExampleCount = 0


class EvaluationTable(_Table):
    """``[evaluation]``: when trials are measured, and on what."""

    every: Steps | None = None
    count: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    spacing: Literal["even", "log"] | None = None
    start: Annotated[float, Field(ge=0, lt=1, strict=False)] = 0.0
    examples: ExamplesTable = ExamplesTable()


class SearchTable(_Table):
    """``[search]``: the metaparameters and how they are searched."""

    algorithm: Literal["halton", "sobol"] = Algorithm.HALTON.value
    paired: bool = False
    edge_margin: Annotated[float, Field(ge=0, lt=0.5, strict=False)] = 0.05
    repeats: Annotated[int, Field(ge=0, le=100)] = 2
    max_attempts: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    space: SpaceTable = {}
    fixed: dict[str, Annotated[float, Field(strict=False)]] = {}
    per_batch_size: dict[str, SpaceTable] = {}


class ExperimentTable(_Table):
    """The whole file."""

    workload: WorkloadTable
    goal: Any
    batch_sizes: Any = None
    trials: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    stop: Literal["budget", "goal", "race"] = StopRule.RACE.value
    finishers: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    metrics: list[Name] | None = None
    budget: BudgetTable = BudgetTable()
    evaluation: EvaluationTable = EvaluationTable()
    search: SearchTable = SearchTable()
