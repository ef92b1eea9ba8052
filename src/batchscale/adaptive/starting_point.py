"""The batch size that the first round of an adaptive experiment is placed around, from sources that cost nothing."""

from batchscale.atlas.curve import model_kind
from batchscale.atlas.similar import OwnCurve
from batchscale.atlas.table import read_atlas
from batchscale.prediction.prediction import Prediction
from batchscale.prediction.public import atlas_prediction, law_predictions
from batchscale.spec.adaptive import Aim
from batchscale.spec.plan import Plan

WIDEST = 64.0  # a prediction whose interval is a wider factor than this places nothing

_SOURCES = {"atlas": "public curves of similar workloads", "published_laws": "published laws"}


def predict_start(plan: Plan) -> tuple[float, str] | None:
    """Return a predicted size and its source, as text; None if nothing predicts one among the sizes to choose from.

    Published laws come before the atlas: they are about this many tokens.
    """
    adaptive = plan.experiment.adaptive
    assert adaptive is not None
    quantity = "optimal_batch_size" if adaptive.aim is Aim.OPTIMAL else "critical_batch_size"
    smallest, largest = plan.studies[0].batch_size, plan.studies[-1].batch_size
    for prediction in _predictions(plan):
        value = prediction.estimate.value
        is_asked = prediction.quantity == quantity and _is_narrow(prediction)
        if is_asked and value is not None and smallest <= value <= largest:
            return value, _SOURCES.get(prediction.method, prediction.method)
    return None


def _predictions(plan: Plan) -> list[Prediction]:
    name, study = plan.experiment.workload.name, plan.studies[0]
    own = OwnCurve(name.dataset, name.model, name.optimizer, model_kind(name.model))
    tokens = study.tokens_per_example
    planned = tokens and float(study.train_steps * study.batch_size * tokens)
    return [*law_predictions(own.kind, planned, tokens), atlas_prediction(own, read_atlas(), tokens)]


def _is_narrow(prediction: Prediction) -> bool:
    low, high = prediction.estimate.low, prediction.estimate.high
    return bool(low and high and high <= WIDEST * low)
