"""Branched predictions: train a trunk and its branches, store the branches as records, and compare them."""

import math
from collections.abc import Sequence
from dataclasses import replace

from batchscale.adaptive.branch_records import BranchGroup, BranchRecords
from batchscale.adaptive.preparation import Preparation, predict_or_explain
from batchscale.errors import AnalysisError
from batchscale.prediction.base_trial import BaseTrial
from batchscale.prediction.branched import ASSUMPTION, METHOD, BranchLosses, branched_prediction
from batchscale.prediction.prediction import Prediction
from batchscale.spec.goal import Goal
from batchscale.spec.horizon_free import HALF_LIFE

FOLDER = "branched"
STATES = (0.25, 0.5)
"""The states that branches leave, as shares of the trunk's steps to the goal."""
LENGTH = 0.5
"""The longest Δ, as a share of the trunk's examples to the goal; its steps are rounded down to a power of 2."""
LENGTHS = 3
"""The number of values of Δ, each half of the next."""
ORDERS = 5
RATE_EXPONENTS = (0.5, 1.0)
"""Both rules of the learning rate, √k and k: the better one counts."""
FEWEST_STEPS = 2
LOSS_OF_ERROR = "cross_entropy_error"


def predict_branched(preparation: Preparation) -> list[Prediction]:
    """Train what is missing of the trunk and its branches, and return their prediction.

    Raises:
        AnalysisError: The experiment has a script of the user's.
    """
    if preparation.plan.experiment.trainer is not None:
        raise AnalysisError(
            "Branches need states of the built-in engine: a script restores its own learning rate with its optimizer."
        )
    return predict_or_explain(preparation, METHOD, ASSUMPTION, _predict)


def _predict(preparation: Preparation, base: BaseTrial) -> Prediction:
    plan = preparation.plan
    length = math.floor(math.log2(max(LENGTH * base.steps, 1)))
    if length < LENGTHS:
        raise AnalysisError(
            f"The tuned trial reached the goal within {base.steps:,} steps, too few for branches; begin at a smaller "
            "batch size, or set a harder goal."
        )
    examples = tuple(base.batch_size * 2**power for power in range(length - LENGTHS, length + 1))
    groups = _plan_branches(base, examples, _largest_size(preparation))
    metric = loss_metric(plan.experiment.goal)
    with BranchRecords(preparation.folder / FOLDER, plan.studies[0], base) as records:
        missing = [group for group in groups if not records.has(group)]
        if missing:
            _train(preparation, missing, records)
        losses = [_read(group, records, base, metric) for group in groups]
    states = {
        step: [branch for group, branch in zip(groups, losses, strict=True) if group.state_step == step]
        for step in sorted({group.state_step for group in groups})
    }
    trunk = max(states)
    steps = base.trial_steps + trunk + sum(group.trial_steps for group in groups)
    read = base.examples + base.batch_size * (trunk + sum(group.trial_steps * group.factor for group in groups))
    return branched_prediction(states, base.batch_size, examples[1:], steps, read)


def loss_metric(goal: Goal) -> Goal:
    """Return the metric that branches are compared by: the goal's, or for an error rate the loss on its split.

    >>> loss_metric(Goal("val/classification_error", 0.03, False)).metric
    'val/cross_entropy_error'
    """
    if goal.metric_name != "classification_error":
        return goal
    return Goal(f"{goal.split}/{LOSS_OF_ERROR}", 0.0, False)


def _largest_size(preparation: Preparation) -> int:
    """Return the largest batch size to branch to: twice that of the experiment, within the training set."""
    return min(2 * max(preparation.sizes), preparation.plan.studies[0].num_train_examples or 2**40)


def _plan_branches(base: BaseTrial, examples: Sequence[int], largest: int) -> list[BranchGroup]:
    """Return all branches, those of one batch size together: their programs are compiled once."""
    factors = [1]
    while (size := 2 * factors[-1] * base.batch_size) <= largest and examples[-1] >= FEWEST_STEPS * size:
        factors.append(2 * factors[-1])
    groups = []
    for factor in factors:
        size = factor * base.batch_size
        steps = tuple(count // size for count in examples if factor == 1 or count >= FEWEST_STEPS * size)
        groups += [
            BranchGroup(step, factor, exponent, steps, tuple(range(1, ORDERS + 1)))
            for exponent in (RATE_EXPONENTS if factor > 1 else RATE_EXPONENTS[:1])
            for step in sorted({max(round(share * base.steps), 1) for share in STATES})
        ]
    return groups


def _train(preparation: Preparation, groups: Sequence[BranchGroup], records: BranchRecords) -> None:
    """Train the trunk to its states, and the branches of these groups from there."""
    from batchscale.training.batch_branches import Branching, BranchTrainer
    from batchscale.training.settings import EngineSettings
    from batchscale.workloads.registry import get_workload

    experiment, study = preparation.plan.experiment, preparation.plan.studies[0]
    base, stop = preparation.base, preparation.stop
    trainer = BranchTrainer(
        get_workload(experiment.workload, preparation.settings.run.data_dir),
        lambda size: replace(study, batch_size=size, half_lives=(), branches=None),
        experiment.evaluation,
        EngineSettings(devices=experiment.run.devices_per_trial),  # exact sums allow no population
        lambda: stop is not None and stop.is_set,
    )
    steps = sorted({group.state_step for group in groups})
    parameters = {name: value for name, value in base.parameters.items() if name != HALF_LIFE}
    states = trainer.train_trunk(base.batch_size, parameters, base.seed, steps)
    if len(states) < len(steps):
        raise AnalysisError("The trunk diverged before the states that branches leave.")
    by_step = dict(zip(steps, states, strict=True))
    for group in groups:
        branching = Branching(group.factor, group.factor**group.exponent, group.steps, group.orders)
        rows = trainer.train_branches(by_step[group.state_step], base.batch_size, branching)
        for order, of_order in zip(group.orders, rows, strict=True):
            records.add(group, order, of_order)


def _read(group: BranchGroup, records: BranchRecords, base: BaseTrial, metric: Goal) -> BranchLosses:
    columns = [records.read(group, order, metric.metric) for order in group.orders]
    sign, size = -1.0 if metric.maximize else 1.0, group.factor * base.batch_size
    losses = {
        step * size: tuple(value if math.isinf(value) else sign * value for value in values)
        for step, values in zip(group.steps, zip(*columns, strict=True), strict=True)
    }
    return BranchLosses(group.factor, group.exponent, losses)
