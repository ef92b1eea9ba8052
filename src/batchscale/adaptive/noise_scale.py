"""The gradient noise scale of the tuned trial, which is trained again to the goal with its noise measured.

The engine measures the noise every 64 steps at most. A short training is repeated with other seeds until there are
enough measurements; all of them count together, by their steps.
"""

import math
from dataclasses import replace

import polars as pl

from batchscale.adaptive.preparation import Preparation
from batchscale.errors import AnalysisError
from batchscale.prediction.base_trial import base_batch_size, read_base_trial
from batchscale.prediction.noise_scale import noise_scale_predictions
from batchscale.prediction.prediction import Prediction
from batchscale.records.frames import Records
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.durations import Budget, Spacing, Unit
from batchscale.spec.experiment import StopRule
from batchscale.spec.goal import Goal
from batchscale.spec.gradient_noise import EXAMPLES_COLUMN, FEWEST_STEPS
from batchscale.spec.horizon_free import HALF_LIFE
from batchscale.spec.space import SearchSpace
from batchscale.spec.workload_name import WorkloadName

METHOD = "noise_scale"
FOLDER = "noise"
AT_GOAL = "_at_goal"
"""The ending of predictions from the last measurements alone, which are too few of several short trials."""
MEASUREMENTS = 100
"""Up to the tuned trial's steps; the noise is measured at some of them."""
NOISE_MEASUREMENTS, MOST_TRIALS = 32, 8
"""The wanted measurements of the noise, and the most trials for them."""
SLACK = 2
"""The step budget, as a multiple of the tuned trial's steps: another seed may take longer."""


def predict_noise_scale(preparation: Preparation) -> list[Prediction]:
    """Train the tuned trial with its gradient noise measured, and return what each kind of it predicts.

    Raises:
        AnalysisError: The experiment has a script of the user's, or no kind of noise could be measured.
    """
    small = preparation.small_experiment()
    if small.trainer is not None:
        raise AnalysisError(
            "Here the gradient noise is measured in the built-in engine. A script measures its own, as "
            "docs/noise-scale.md shows."
        )
    base = preparation.base
    fixed = {name: value for name, value in base.parameters.items() if name != HALF_LIFE}
    search = replace(small.search, space=SearchSpace(), fixed=fixed, per_batch_size={}, repeats=0)
    trials = min(max(math.ceil(NOISE_MEASUREMENTS * FEWEST_STEPS / base.steps), 1), MOST_TRIALS)
    evaluation = replace(small.evaluation, count=MEASUREMENTS * SLACK, spacing=Spacing.EVEN, start=0.0)
    experiment = replace(
        replace(small, evaluation=evaluation).with_gradient_noise(),
        batch_sizes=BatchSizes((base.batch_size,)),
        trials=trials,
        finishers=trials,
        stop=StopRule.GOAL,
        budget=Budget(SLACK * base.steps, Unit.STEPS),
        search=search,
        averaging=None,
        branches=None,
    )
    name = small.workload.name
    records = preparation.train(experiment, FOLDER)
    measurements = records.measurements_of(name).sort("step", "trial_id").collect()
    predictions = noise_scale_predictions(measurements, base.batch_size, None)
    if not predictions:
        raise AnalysisError("No gradient noise was measured.")
    noise = int(measurements[EXAMPLES_COLUMN].fill_nan(0).fill_null(0).sum())
    trained = int(records.workload(name).trials["steps"].sum()) + math.ceil(noise / base.batch_size)
    steps = base.trial_steps + trained
    return [
        replace(item, trial_steps=steps, examples=steps * base.batch_size)
        for item in predictions
        if not item.method.endswith(AT_GOAL)
    ]


def read_noise_scale(records: Records, name: WorkloadName, goal: Goal, *, required: bool) -> list[Prediction]:
    """Return what the recorded gradient noise of the best trial predicts; nothing is trained for it.

    The trial is the one with the fewest steps to the goal at a small batch size.

    Raises:
        AnalysisError: No trial reached the goal; or no noise was recorded, and it is required.
    """
    selected = records.workload(name)
    sizes = tuple(sorted(selected.studies["batch_size"].unique().to_list()))
    base = read_base_trial(records, name, goal, base_batch_size(sizes), paid=False)
    of_trial = (pl.col("batch_size") == base.batch_size) & (pl.col("trial_id") == base.trial_id)
    measurements = selected.measurements_of(name).filter(of_trial).collect()
    predictions = noise_scale_predictions(measurements, base.batch_size, goal)
    if required and not predictions:
        raise AnalysisError(
            "Records must have gradient noise for the noise scale. Found none; measure with run --gradient-noise, or "
            "predict from the experiment file."
        )
    return [replace(item, trial_steps=0, examples=0) for item in predictions]
