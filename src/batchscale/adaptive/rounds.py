"""Run an experiment: a fixed one as it is planned, an adaptive one in rounds that depend on what was measured.

A round is a larger plan of the same experiment: one more batch size, or more trials at all sizes. Its choice is stored
in the ``study.json`` of the sizes that it concerns before any of their trials starts. A run that is killed continues
the rounds that are stored; the next choice is a function of the records alone, so it is the same.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from batchscale.adaptive.configurations import read_configurations
from batchscale.adaptive.progress import ReadProgress, read_progress
from batchscale.adaptive.starting_point import noise_start, public_start, stored_start
from batchscale.prediction.base_trial import base_batch_size
from batchscale.prediction.next_round import Design, first_look, next_round, start_round
from batchscale.prediction.quantities import AimQuestion, OpenQuestion
from batchscale.records.tree.read import read_tree
from batchscale.run.loop import RunResult
from batchscale.run.make_runner import announce_round
from batchscale.run.session import RunOutcome, run_plan
from batchscale.run.settings import RunSettings
from batchscale.run.signals import StopFlag
from batchscale.run.status import RunStatus
from batchscale.spec.adaptive import ChoiceKind, RoundChoice, finishers_of
from batchscale.spec.plan import Plan, Study
from batchscale.study.next_search import neighbours_space


def run_experiment(
    plan: Plan,
    root: Path,
    settings: RunSettings | None = None,
    show: Callable[[RunStatus], None] = lambda _status: None,
    stop: StopFlag | None = None,
) -> RunOutcome:
    """Run the studies of a plan into the records tree at ``root``, or continue them; see `run_plan`.

    For an adaptive experiment ``plan`` has the batch sizes to choose from.

    Raises:
        RunError: as `run_plan`.
        PlanningError: the machines of a decision cannot be used.
    """
    if plan.experiment.adaptive is None:
        return run_plan(plan, root, settings, show, stop)
    settings = settings or RunSettings()
    read = _read(plan, root)
    first = plan_round(plan, read if read.choices else replace(read, choices=(_first_round(plan, root, read),)))

    def continue_with() -> Plan | None:
        following = next_plan(plan, root)
        announce_round(settings, following is not None)
        return following

    outcome = run_plan(first, root, settings, show, stop, continue_with)
    if outcome.result is RunResult.STOPPED:
        announce_round(settings, False)
    return outcome


def next_plan(plan: Plan, root: Path) -> Plan | None:
    """Return the plan of the next round, from the records of finished ones; None after the last."""
    read = _read(plan, root)
    assert read.progress is not None
    design = _design(plan, read)
    if len(read.choices) == 1 and len(read.choices[0].sizes) == 1:  # a first look
        start = noise_start(plan, read_tree(root)) or public_start(plan)
        choice = start_round(design, start, read.progress)
    else:
        choice = next_round(design, read.progress)
    last = read.choices[-1]
    if last.kind is ChoiceKind.STOP and choice.kind is ChoiceKind.STOP:
        choice = replace(choice, round=last.round)
        if choice == last:
            return None
    return plan_round(plan, replace(read, choices=(*read.choices[: choice.round - 1], choice)))


def plan_round(plan: Plan, read: ReadProgress) -> Plan:
    """Return the studies of the rounds so far, with their choices."""
    choices = read.choices
    sizes = {size for choice in choices for size in choice.sizes}
    trials = max(choice.trials for choice in choices)
    studies = [_study(study, plan, read, choices, trials) for study in plan.studies if study.batch_size in sizes]
    experiment = plan.experiment
    if experiment.adaptive is not None and experiment.adaptive.chooses_finishers:
        experiment = replace(experiment, finishers=finishers_of(trials))
    return replace(plan, experiment=experiment, studies=tuple(studies))


def _first_round(plan: Plan, root: Path, read: ReadProgress) -> RoundChoice:
    """Return the first round: around the best prediction, or at one size whose gradient noise makes one."""
    design, experiment = _design(plan, read), plan.experiment
    start = stored_start(plan, root)
    if start is None and experiment.evaluation.gradient_noise and design.plan.chooses_sizes and len(design.sizes) > 4:
        return first_look(design, base_batch_size(design.sizes))
    return start_round(design, start or public_start(plan))


def _study(study: Study, plan: Plan, read: ReadProgress, choices: tuple[RoundChoice, ...], trials: int) -> Study:
    """Return a study with the trials that it has by now; a new one in the ranges that its neighbours suggest."""
    own = tuple(choice for choice in choices if study.batch_size in choice.sizes)
    winners, search = read.winners or {}, plan.experiment.search
    space, attempts = study.space, search.max_attempts or 10 * trials
    # Without the edge guard ranges stay: a size whose ranges moved would be searched better than those before it.
    is_guarded = search.repeats > 0 and search.edge_margin > 0
    if is_guarded and study.batch_size not in winners and study.batch_size not in search.per_batch_size:
        space = neighbours_space(space, winners, study.batch_size, study.train_steps)
    return replace(study, trials=trials, max_attempts=attempts, space=space, choices=own)


def _read(plan: Plan, root: Path) -> ReadProgress:
    return read_progress(root, plan.experiment, tuple(study.batch_size for study in plan.studies))


def _design(plan: Plan, read: ReadProgress) -> Design:
    adaptive = plan.experiment.adaptive
    assert adaptive is not None
    sizes = tuple(study.batch_size for study in plan.studies)
    question: OpenQuestion = AimQuestion(adaptive.aim, sizes[0], sizes[-1], read.step_time or (0.0, 1.0))
    if adaptive.aim.is_decision:
        measured = () if read.progress is None else read.progress.sizes
        question = read_configurations(plan).without({size.batch_size for size in measured if size.steps is None})
    return Design(adaptive, question, sizes)
