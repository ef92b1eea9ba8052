"""The experiment: a workload at several batch sizes, with a goal, budgets and the machines to use.

Owns the frozen values that one TOML file describes. Reading the file is in ``file``; turning an experiment into studies
is in ``plan``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from typing_extensions import TypeAliasType

from batchscale.errors import SpecError, one_line
from batchscale.spec.adaptive import AdaptivePlan
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.durations import Budget, EvaluationPlan, Unit, tokens_unknown
from batchscale.spec.goal import Goal
from batchscale.spec.horizon_free import Averaging, Branches
from batchscale.spec.space import SearchSpace
from batchscale.spec.tokens import to_examples
from batchscale.spec.trainer import TrainerSpec
from batchscale.spec.workload_name import WorkloadName

T = TypeVar("T")

Option = TypeAliasType("Option", "bool | int | float | str | tuple[Option, ...]")
"""A named alias: pydantic cannot check values by a plain alias that contains itself."""

Options = Mapping[str, Option]
DEFAULT_FILE_TIMEOUT_S = 600.0

SLURM_RESERVED = (
    "account", "array", "chdir", "cpus-per-task", "error", "exclude", "export", "export-file", "gpus-per-node",
    "help", "input", "job-name", "mem", "nodes", "no-requeue", "ntasks", "open-mode", "output", "parsable", "partition",
    "qos", "quiet", "requeue", "signal", "test-only", "time", "usage", "version", "wait", "wrap",
)  # fmt: skip
"""Options that the runner sets itself, or that would make ``sbatch`` do something else than submit."""

_OPTION = re.compile(r"--(?P<name>[a-z][a-z0-9-]*)(?:=(?P<value>.+))?")
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<parts>\d+(?::\d{1,2}){0,2})")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:,@+&|()*\[\]-]*")


class StopRule(StrEnum):
    """The rule that ends a trial.

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
    """The metaparameter search of an experiment.

    ``space`` replaces ranges of the workload's default space by name; ``fixed`` holds metaparameters at a value
    instead of searching them; ``per_batch_size`` replaces ranges at single batch sizes. ``paired`` uses the same
    unit points at every batch size. A study may be searched again in a moved space ``repeats`` times. ``max_attempts``
    limits the trials that a search starts to get its non-divergent ones.
    """

    algorithm: Algorithm = Algorithm.HALTON
    paired: bool = False
    space: SearchSpace = field(default_factory=SearchSpace)
    fixed: Mapping[str, float] = field(default_factory=dict)
    per_batch_size: Mapping[int | str, SearchSpace] = field(default_factory=dict)
    edge_margin: float = 0.05
    repeats: int = 2
    max_attempts: int | None = None


@dataclass(frozen=True)
class SlurmOptions:
    """The resources that one worker requests from SLURM. ``sbatch`` gets words, never the text of a shell.

    ``time`` is a limit as SLURM writes it; ``gpus`` is a number, or kind and number ("a100:1"). A worker saves its
    trials ``save_s`` seconds before the time limit and is queued again.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str | None = None
    gpus: str | None = None
    cpus: int | None = None
    memory: str | None = None
    save_s: int = 120
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key in ("partition", "account", "qos", "gpus", "memory"):
            _check_word(key, getattr(self, key))
        _check_options(self.options)
        limit_s = self.limit_s
        if limit_s is not None and limit_s < 2 * self.save_s:
            raise SpecError(
                f"slurm.time must be at least twice save_s, or a worker would only save. Found {self.time} with "
                f"save_s = {self.save_s}. Request more time, or lower save_s."
            )

    @property
    def limit_s(self) -> int | None:
        """The time limit in seconds."""
        return None if self.time is None else time_limit_s(self.time)

    @property
    def num_gpus(self) -> int:
        """The number of GPUs of a worker."""
        return 0 if self.gpus is None else int(self.gpus.rpartition(":")[2])


@dataclass(frozen=True)
class RayPlan:
    """The resources that a worker takes of its node on a Ray cluster; None is decided when the cluster is reached.

    ``resources`` are amounts of what nodes declare, by name. ``checkpoints`` is a remote path that keeps the states of
    running trials, in place of a folder that all nodes see.
    """

    num_cpus: float | None = None
    num_gpus: float | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    checkpoints: str | None = None


@dataclass(frozen=True)
class RunPlan:
    """The devices that train each trial (None: all of a host). Changes no result, up to rounding.

    ``exact`` adds gradients in an order that does not depend on the devices. ``slurm`` and ``ray`` are the resources of
    workers on these clusters. ``track`` names the tools that trials are mirrored to, as ``NAME:TARGET``.
    """

    devices_per_trial: int | None = 1
    exact: bool = False
    track: tuple[str, ...] = ()
    slurm: SlurmOptions = field(default_factory=SlurmOptions)
    ray: RayPlan = field(default_factory=RayPlan)


DEFAULT_BATCH_SIZES = BatchSizes(tuple(2**power for power in range(11)))
DEFAULT_BUDGET = Budget(amount=30, unit=Unit.EPOCHS, at_least_steps=1000)


@dataclass(frozen=True)
class Experiment:
    """The content of an experiment file. ``trials`` counts the NON-DIVERGENT ones of each search.

    ``finishers`` is how many trials must have reached the goal before a race ends; more than one gives the analysis
    the runners-up that it needs for intervals. After its searches a study trains its ``confirm_best`` best trials again
    with ``confirm`` new seeds each. ``trainer`` is the script that trains in place of our engine. With ``averaging``
    averages of the weights are measured, with ``branches`` the ends of branches. ``tokens_per_example`` is given where
    the workload itself does not state it. With ``adaptive`` batch sizes or trials are chosen while it runs; then
    ``batch_sizes`` are those to choose from, and ``trials`` those that a study starts with. ``source`` and ``text``
    are the file that it was read from, if any.
    """

    workload: WorkloadSpec
    goal: Goal
    batch_sizes: BatchSizes = DEFAULT_BATCH_SIZES
    trials: int = 100
    budget: Budget = DEFAULT_BUDGET
    evaluation: EvaluationPlan = field(default_factory=EvaluationPlan)
    stop: StopRule = StopRule.RACE
    finishers: int = 1
    confirm: int = 0
    confirm_best: int = 1
    search: SearchPlan = field(default_factory=SearchPlan)
    seed: int = 0
    metrics: tuple[str, ...] | None = None
    source: str = "experiment.toml"
    text: str | None = None
    trainer: TrainerSpec | None = None
    run: RunPlan = field(default_factory=RunPlan)
    tokens_per_example: int | None = None
    averaging: Averaging | None = None
    branches: Branches | None = None
    adaptive: AdaptivePlan | None = None

    def in_examples(self, tokens_per_example: int | None) -> "Experiment":
        """Return the experiment with all batch sizes in examples. Budgets stay as they are.

        Raises:
            SpecError: a size in tokens is not a whole number of examples.
        """
        sizes, budget, search = self.batch_sizes, self.budget, self.search
        keys = [key for key in (*budget.per_batch_size, *search.per_batch_size) if isinstance(key, str)]
        if not sizes.tokens and not keys:
            return self
        if tokens_per_example is None:
            raise tokens_unknown(f"a batch size of {(*sizes.tokens, *keys)[0]}")
        converted = to_examples(sizes.tokens, tokens_per_example, keys)

        def rename(values: Mapping[int | str, T]) -> dict[int | str, T]:
            return {converted[key][0] if isinstance(key, str) else key: value for key, value in values.items()}

        return replace(
            self,
            batch_sizes=sizes.in_examples(tokens_per_example, keys),
            budget=replace(budget, per_batch_size=rename(budget.per_batch_size)),
            search=replace(search, per_batch_size=rename(search.per_batch_size)),
        )

    def with_gradient_noise(self) -> "Experiment":
        """Return the experiment with its gradient noise measured, by the kinds that it names or that fit.

        Raises:
            SpecError: a script trains, which has to measure it itself.
        """
        if self.trainer is not None:
            raise noise_of_script("--gradient-noise")
        noise = self.evaluation.gradient_noise or True
        return replace(self, evaluation=replace(self.evaluation, gradient_noise=noise))

    def evaluation_steps(
        self, train_steps: int, batch_size: int, tokens_per_example: int | None = None
    ) -> tuple[int, ...]:
        """Return the measured steps of a trial with this budget; a script of the user does not measure step 0."""
        steps = self.evaluation.in_steps(batch_size, tokens_per_example).steps(train_steps)
        return steps if self.trainer is None else steps[1:]


def noise_of_script(setting: str) -> SpecError:
    """Return the error about a setting that asks our engine for gradient noise where a script trains."""
    return SpecError(
        f"{setting} is for our own engine. Remove it: a script measures the noise itself with "
        "batchscale/gradient_noise.py, and reports it like any metric (docs/noise-scale.md)."
    )


def time_limit_s(text: str) -> int:
    """Convert a time limit as SLURM writes it to seconds.

    >>> [time_limit_s(text) for text in ("90", "2:30", "1:00:00", "1-12", "1-00:30")]
    [5400, 150, 3600, 129600, 88200]
    """
    match = _TIME.fullmatch(text)
    parts = [int(part) for part in match["parts"].split(":")] if match is not None else []
    if match is None or any(part > 10**6 for part in parts):
        raise SpecError(
            "slurm.time must be minutes, minutes:seconds, hours:minutes:seconds, days-hours or "
            f"days-hours:minutes:seconds. Found {one_line(repr(text))}."
        )
    if match["days"] is not None:
        days, units = int(match["days"][:6]), [3600, 60, 1]  # days-hours:minutes:seconds
    else:
        days, units = 0, [60] if len(parts) == 1 else [3600, 60, 1][-len(parts) :]
    return days * 86_400 + sum(part * unit for part, unit in zip(parts, units, strict=False))


def _check_word(key: str, value: str | None) -> None:
    if value is not None and not _WORD.fullmatch(value):
        raise SpecError(f"slurm.{key} must be one word as sbatch takes it. Found {one_line(repr(value))}.")
    if key == "gpus" and value is not None and not re.fullmatch(r"([A-Za-z0-9._-]+:)?[1-9]\d{0,3}", value):
        raise SpecError(f'slurm.gpus must be a number, or kind and number ("a100:1"). Found {one_line(repr(value))}.')


def _check_options(options: Sequence[str]) -> None:
    for option in options:
        match = _OPTION.fullmatch(option)
        if match is None or not option.isprintable():
            raise SpecError(
                'slurm.options must be single words of sbatch such as "--constraint=a100" or "--exclusive". Found '
                f"{one_line(repr(option))}."
            )
        if any(name.startswith(match["name"]) for name in SLURM_RESERVED):  # sbatch accepts prefixes
            raise SpecError(
                f"slurm.options must be options that the runner does not set itself. Found "
                f"--{match['name']}. Use the key of [run.slurm] if there is one, or remove it."
            )
