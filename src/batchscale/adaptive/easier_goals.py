"""Short runs for easier goals: all batch sizes of the experiment, few trials, and a goal that is reached early."""

from dataclasses import replace

import polars as pl

from batchscale.adaptive.preparation import Preparation, predict_or_explain
from batchscale.analysis.outcomes import trial_outcomes
from batchscale.prediction.base_trial import BaseTrial
from batchscale.prediction.easier_goals import (
    ASSUMPTION,
    METHOD,
    easier_goals,
    easier_goals_prediction,
    goal_shares,
    measure_goals,
)
from batchscale.prediction.prediction import Prediction
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.durations import Budget

FOLDER = "short"
FINISHERS = 3
SLACK = 2.0
"""The step budget of short runs, as a multiple of the tuned trial's share: other sizes take longer."""


def predict_easier_goals(preparation: Preparation) -> list[Prediction]:
    """Run the experiment for easier goals, and return their prediction."""
    return predict_or_explain(preparation, METHOD, ASSUMPTION, _predict)


def _predict(preparation: Preparation, base: BaseTrial) -> Prediction:
    plan = preparation.plan
    goal, name = plan.experiment.goal, plan.experiment.workload.name
    goals = easier_goals(base.values, base.steps, goal)
    shares = goal_shares(base, goals)
    small = preparation.small_experiment()
    experiment = replace(
        small,
        goal=goals[0],
        batch_sizes=BatchSizes(preparation.sizes),
        finishers=min(FINISHERS, small.trials),
        budget=_shorten(small.budget, min(SLACK * shares[0], 1.0)),
    )
    records = preparation.train(experiment, FOLDER)
    trained = trial_outcomes(records.workload(name), goals[0]).filter(pl.col("last_step") > 0)
    steps = base.trial_steps + int(trained["last_step"].sum())
    examples = base.examples + int((trained["last_step"] * trained["batch_size"]).sum())
    return easier_goals_prediction(measure_goals(records, name, goals, shares), steps, examples)


def _shorten(budget: Budget, share: float) -> Budget:
    return replace(
        budget,
        amount=budget.amount * share,
        at_least_steps=max(round(budget.at_least_steps * share), 1),
        per_batch_size={size: amount * share for size, amount in budget.per_batch_size.items()},
    )
