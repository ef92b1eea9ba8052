"""The batch size that the first rounds of an adaptive experiment are placed around, from the best predictor there is.

In this order: predictions that `batchscale predict` or `run --predict` stored for the same experiment, by how close
their methods came in docs/prediction.md; the gradient noise of the first trials, if the experiment records it;
published laws, which are about this many tokens; public curves of similar workloads. The start trains nothing for them.
"""

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from batchscale.adaptive.stored_predictions import SUFFIX, read_predictions
from batchscale.analysis.outcomes import Outcome, trial_outcomes
from batchscale.atlas.curve import model_kind
from batchscale.atlas.similar import OwnCurve
from batchscale.atlas.table import read_atlas
from batchscale.errors import one_line
from batchscale.formatting import count_text
from batchscale.prediction.branched import METHOD as BRANCHED
from batchscale.prediction.easier_goals import METHOD as EASIER_GOALS
from batchscale.prediction.noise_scale import noise_scale_predictions
from batchscale.prediction.noisy_quadratic import ASSUMED, MEASURED
from batchscale.prediction.prediction import Prediction, refuse_vague
from batchscale.prediction.public import ATLAS, LAWS, atlas_prediction, law_predictions
from batchscale.records.frames import Records
from batchscale.spec.adaptive import Aim
from batchscale.spec.plan import Plan

WIDEST = 64.0  # a prediction whose interval is a wider factor than this places nothing
NOISE_SCALE, AT_GOAL = "noise_scale", "_at_goal"

_TRAINED = (EASIER_GOALS, BRANCHED, NOISE_SCALE, MEASURED, ASSUMED)
"""The methods of stored predictions, best first."""
_SOURCES = {ATLAS: "public curves of similar workloads", LAWS: "published laws"}

Start = tuple[float, str]
"""A batch size, and its name for the reason of a round."""


def stored_start(plan: Plan, root: Path) -> Start | None:
    """Return the size of the best stored prediction; None without one among the sizes to choose from.

    They are beside the records at ``root``, where `run --predict` has them, or in the current folder under the name of
    the experiment file, where `batchscale predict` has them.
    """
    for folder in (root.with_name(f"{root.name}{SUFFIX}"), Path(f"{Path(plan.experiment.source).stem}{SUFFIX}")):
        predictions = read_predictions(folder, plan.experiment)
        for method in _TRAINED:
            same = [each for each in predictions if _is_method(each, method)]
            start = _first(plan, [(each, f"{each.method}, stored in {one_line(folder.name)}") for each in same])
            if start is not None:
                return start
    return None


def noise_start(plan: Plan, records: Records) -> Start | None:
    """Return the gradient noise scale of the trials that reached the goal, at the one size that was measured."""
    name, goal = plan.experiment.workload.name, plan.experiment.goal
    selected = records.workload(name)
    outcomes = trial_outcomes(selected, goal).filter(pl.col("outcome") == Outcome.REACHED.value)
    size = int(selected.studies["batch_size"][0])
    reached = outcomes.select("trial_id", "steps_to_goal").lazy()
    measurements = (
        selected.measurements_of(name)
        .join(reached, on="trial_id")
        .filter(pl.col("step") <= pl.col("steps_to_goal"))
        .sort("step", "trial_id")
        .collect()
    )
    predictions = noise_scale_predictions(measurements, size, None) if measurements.height else []
    where = f"measured in {count_text(outcomes.height, 'trial')} at batch size {size:,}"
    whole = [refuse_vague(each) for each in predictions if not each.method.endswith(AT_GOAL)]
    return _first(plan, [(each, f"{each.method}, {where}") for each in whole])


def public_start(plan: Plan) -> Start | None:
    """Return the size that published laws or public curves predict."""
    name, study = plan.experiment.workload.name, plan.studies[0]
    own = OwnCurve(name.dataset, name.model, name.optimizer, model_kind(name.model))
    tokens = study.tokens_per_example
    planned = tokens and float(study.train_steps * study.batch_size * tokens)
    predictions = [*law_predictions(own.kind, planned, tokens), atlas_prediction(own, read_atlas(), tokens)]
    return _first(plan, [(each, _SOURCES[each.method]) for each in predictions])


def _is_method(prediction: Prediction, method: str) -> bool:
    if method == NOISE_SCALE:
        return prediction.method.startswith(method) and not prediction.method.endswith(AT_GOAL)
    return prediction.method == method


def _first(plan: Plan, predictions: Iterable[tuple[Prediction, str]]) -> Start | None:
    """Return the first prediction that is narrow enough and among the sizes to choose from, named by its source."""
    adaptive = plan.experiment.adaptive
    assert adaptive is not None
    quantity = "optimal_batch_size" if adaptive.aim is Aim.OPTIMAL else "critical_batch_size"
    smallest, largest = plan.studies[0].batch_size, plan.studies[-1].batch_size
    for prediction, source in predictions:
        value, low, high = prediction.estimate.value, prediction.estimate.low, prediction.estimate.high
        is_narrow = bool(low and high and high <= WIDEST * low)
        if prediction.quantity == quantity and is_narrow and value is not None and smallest <= value <= largest:
            return value, f"the {quantity.replace('_', ' ')} predicted by {source}"
    return None
