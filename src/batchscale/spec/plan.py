"""The studies of an experiment, made from the experiment and the properties of its workload.

The properties come from the workloads layer; all checks that need them happen here, before any compute.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from batchscale.errors import SpecError, suggest_names
from batchscale.spec.adaptive import RoundChoice
from batchscale.spec.batch_sizes import FEWEST_AUTO
from batchscale.spec.durations import MAX_MEASUREMENTS
from batchscale.spec.experiment import Experiment, StopRule
from batchscale.spec.goal import SPLITS, Goal
from batchscale.spec.gradient_noise import NO_MOMENTS, WITHOUT_MOMENTS, NoiseKind
from batchscale.spec.horizon_free import Branches
from batchscale.spec.space import SearchSpace, check_bounds, check_value, replaced_names
from batchscale.spec.workload_name import WorkloadName

MAX_PLANNED_MEASUREMENTS = 20 * MAX_MEASUREMENTS
"""Of one trial at every batch size: a plan lists their steps."""


@dataclass(frozen=True)
class WorkloadInfo:
    """The properties of a workload that checking an experiment needs, found without its data or a device.

    ``metrics`` maps the metric names (without split) to whether they are to be maximised. ``defaults`` maps every
    metaparameter that may be searched or fixed to the value it has otherwise (None: it must be searched or fixed).
    ``default_space`` gives the space for a step budget. ``num_train_examples`` is None for sampled data,
    ``num_outputs`` (classes, labels or sub-words) None if only the data files have it. ``tokens_per_example`` is None
    for data that is no text, or whose examples have different numbers of tokens.
    """

    name: WorkloadName
    metrics: Mapping[str, bool]
    num_train_examples: int | None
    defaults: Mapping[str, float | None]
    default_space: Callable[[int], SearchSpace]
    splits: tuple[str, ...] = SPLITS
    num_outputs: int | None = None
    tokens_per_example: int | None = None


@dataclass(frozen=True)
class Study:
    """The metaparameter search of a workload at one batch size, with every duration in steps.

    ``num_train_examples`` is the size of the training set; None for sampled data, or where it is not needed.
    ``tokens_per_example`` is None where it is unknown.
    ``half_lives`` are those of the averages of the weights that are measured; empty: the weights are.
    With ``branches`` each measurement is the end of a branch. ``choices`` are the rounds of an adaptive experiment that
    concern this study.
    """

    workload: WorkloadName
    batch_size: int
    train_steps: int
    evaluation_steps: tuple[int, ...]
    space: SearchSpace
    fixed: Mapping[str, float]
    trials: int
    max_attempts: int
    goal: Goal
    stop: StopRule
    seed: int
    num_train_examples: int | None = None
    tokens_per_example: int | None = None
    half_lives: tuple[float, ...] = ()
    branches: Branches | None = None
    choices: tuple[RoundChoice, ...] = ()

    @property
    def trial_steps(self) -> int:
        """The most optimizer steps its non-divergent trials can take together."""
        steps = self.branches.trained_steps(self.evaluation_steps) if self.branches else self.train_steps
        return self.trials * steps


@dataclass(frozen=True)
class Plan:
    """The studies of an experiment, by growing batch size."""

    experiment: Experiment
    studies: tuple[Study, ...]

    @property
    def trial_steps(self) -> int:
        """The most optimizer steps of one search at every batch size: the cost estimate."""
        return sum(study.trial_steps for study in self.studies)

    @property
    def trial_examples(self) -> int:
        """The most training examples of one search at every batch size."""
        return sum(study.trial_steps * study.batch_size for study in self.studies)


def make_plan(experiment: Experiment, info: WorkloadInfo) -> Plan:
    """Return the studies of an experiment.

    Raises:
        SpecError: the experiment does not fit the workload.
    """
    _check_metrics(experiment, info)
    _check_noise(experiment)
    experiment, info = _with_tokens(experiment, info)
    attempts = experiment.search.max_attempts
    if attempts is not None and attempts < experiment.trials:
        raise SpecError(
            f"search.max_attempts must be at least trials, or no search can be complete. Found {attempts} attempts "
            f"for {experiment.trials} trials."
        )
    sizes = experiment.batch_sizes.resolve(info.num_train_examples)
    _check_adaptive(experiment, sizes)
    for size in {*experiment.budget.per_batch_size, *experiment.search.per_batch_size} - set(sizes):
        raise SpecError(f"per_batch_size must name batch sizes of the experiment: {list(sizes)}. Found {size}.")
    _check_measurements(experiment, info, sizes)
    return Plan(experiment, tuple(_make_study(experiment, info, size) for size in sizes))


def _check_noise(experiment: Experiment) -> None:
    """Refuse what is known not to fit; an optimizer of the user's is known where it trains."""
    kinds, workload = experiment.evaluation.gradient_noise, experiment.workload
    if isinstance(kinds, bool) or NoiseKind.PRECONDITIONED not in kinds or workload.file is not None:
        return
    if workload.name.optimizer in WITHOUT_MOMENTS:
        raise SpecError(NO_MOMENTS.format(optimizer=workload.name.optimizer))


def _check_adaptive(experiment: Experiment, sizes: Sequence[int]) -> None:
    adaptive, attempts = experiment.adaptive, experiment.search.max_attempts
    if adaptive is None:
        return
    if len(sizes) < FEWEST_AUTO:
        raise SpecError(
            f'trials = "auto" needs at least {FEWEST_AUTO} batch sizes, or there is no interval to narrow. Found '
            f"{list(sizes)}."
        )
    if adaptive.chooses_trials and attempts is not None and attempts < adaptive.most_trials:
        raise SpecError(
            f'search.max_attempts must be at least adaptive.most_trials with trials = "auto". Found {attempts} '
            f"attempts for up to {adaptive.most_trials} trials."
        )


def _with_tokens(experiment: Experiment, info: WorkloadInfo) -> tuple[Experiment, WorkloadInfo]:
    """Return both with the tokens of an example as the file or the workload has it, and batch sizes in examples."""
    given, stated = experiment.tokens_per_example, info.tokens_per_example
    if given is not None and stated is not None and given != stated:
        raise SpecError(
            f"tokens_per_example must be what the workload has: {stated:,} tokens in an example of {info.name}. Found "
            f"{given:,}. Remove the key, or change the sequence length of the data set."
        )
    tokens = given or stated
    return experiment.in_examples(tokens), replace(info, tokens_per_example=tokens)


def _check_measurements(experiment: Experiment, info: WorkloadInfo, sizes: Sequence[int]) -> None:
    """Reject more measurements than a plan can list, before it is made."""
    total = 0
    for size in sizes:
        steps = experiment.budget.steps(size, info.num_train_examples, info.tokens_per_example)
        total += experiment.evaluation.in_steps(size, info.tokens_per_example).count_measurements(steps)
    if total > MAX_PLANNED_MEASUREMENTS:
        raise SpecError(
            f"evaluation: one trial at every batch size must have at most {MAX_PLANNED_MEASUREMENTS:,} measurements. "
            f"Found {total:,} at {len(sizes):,} batch sizes; measure less often, or at fewer batch sizes."
        )


def _check_metrics(experiment: Experiment, info: WorkloadInfo) -> None:
    goal = experiment.goal
    recorded = info.metrics if experiment.metrics is None else experiment.metrics
    for name in recorded:
        if name not in info.metrics:
            raise SpecError(
                f"metrics: workload {info.name} does not report '{name}'; {suggest_names(name, info.metrics)}"
            )
    if goal.metric_name in info.metrics and goal.metric_name not in recorded:
        raise SpecError(f"metrics: the goal's metric '{goal.metric_name}' must be recorded. Found {list(recorded)}.")
    if goal.metric_name not in recorded or goal.split not in info.splits:
        valid = [f"{split}/{name}" for split in info.splits for name in recorded]
        raise SpecError(
            f"goal: the metric must be one that workload {info.name} reports. Found '{goal.metric}'; "
            f"{suggest_names(goal.metric, valid)}"
        )
    if goal.maximize != info.metrics[goal.metric_name]:
        sign, verb = ("<", "minimised") if goal.maximize else (">", "maximised")
        raise SpecError(f"goal: '{goal.metric_name}' is to be {verb}, so the goal needs '{sign}'. Found '{goal}'.")
    if experiment.trainer is None and experiment.evaluation.examples.get(goal.split, 0) == 0:
        raise SpecError(f"evaluation.examples.{goal.split} must not be 0: the goal '{goal}' is measured on that split.")


def _make_study(experiment: Experiment, info: WorkloadInfo, batch_size: int) -> Study:
    search, averaging = experiment.search, experiment.averaging
    for name in search.fixed:
        if name in search.space:
            raise _fixed_and_searched(name)
    tokens = info.tokens_per_example
    train_steps = experiment.budget.steps(batch_size, info.num_train_examples, tokens)
    here = search.per_batch_size.get(batch_size, SearchSpace())
    replaced = replaced_names([*search.space.names, *search.fixed, *here.names], info.defaults)
    space = info.default_space(train_steps).without(*replaced.values()).replace(*search.space).without(*search.fixed)
    space = space.replace(*here)
    _check_space(space, search.fixed, replaced, info)
    evaluation_steps = experiment.evaluation_steps(train_steps, batch_size, tokens)
    if experiment.branches is not None:
        experiment.branches.check(evaluation_steps, info.defaults)
    return Study(
        workload=info.name,
        batch_size=batch_size,
        train_steps=train_steps,
        evaluation_steps=evaluation_steps,
        space=space,
        fixed=dict(search.fixed),
        trials=experiment.trials,
        max_attempts=search.max_attempts or 10 * experiment.trials,
        goal=experiment.goal,
        stop=experiment.stop,
        seed=derive_seed(experiment.seed, str(info.name), 0 if search.paired else batch_size),
        num_train_examples=info.num_train_examples,
        tokens_per_example=tokens,
        half_lives=averaging.steps(batch_size, info.num_train_examples, tokens) if averaging else (),
        branches=experiment.branches,
    )


def _check_space(
    space: SearchSpace, fixed: Mapping[str, float], replaced: Mapping[str, str], info: WorkloadInfo
) -> None:
    for name in (*space.names, *fixed):
        if name not in info.defaults and name not in replaced:
            raise SpecError(
                f"search: workload {info.name} has no metaparameter '{name}'; {suggest_names(name, info.defaults)}"
            )
    for name in fixed:
        if name in space:
            raise _fixed_and_searched(name)
        check_value(name, fixed[name], " in search.fixed")
    for config in space:
        check_bounds(config)
    for name, default in info.defaults.items():
        if default is None and name not in (*space.names, *fixed, *replaced.values()):
            raise SpecError(f"search: metaparameter '{name}' has no default; give it a range or a fixed value.")


def _fixed_and_searched(name: str) -> SpecError:
    return SpecError(
        f"search: metaparameter '{name}' is both fixed and searched; remove it from search.fixed, or from the ranges."
    )


def derive_seed(*parts: int | str) -> int:
    """Return a seed below 2**31 for these parts, as a pure function of them; other parts give an unrelated seed.

    >>> derive_seed(0, "mnist", 64), derive_seed(0, "mnist", 128)
    (944606874, 1613767406)
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % 2**31
