"""The prediction of a batch size by one method, with its interval, its cost and its assumption."""

from dataclasses import dataclass, replace
from typing import Literal

from batchscale.analysis.intervals import Estimate
from batchscale.formatting import span_text

MOST_APART = 100
"""An interval whose ends are further apart than this factor is no prediction."""

Quantity = Literal["critical_batch_size", "optimal_batch_size"]


@dataclass(frozen=True)
class Prediction:
    """A batch size that a method predicts without measuring the curve.

    Attributes:
        method: The name of the method in tables and JSON, as ``noise_scale``.
        quantity: The batch size that is predicted.
        estimate: The batch size in examples, with the ends of its interval; no value if it is not resolved.
        trial_steps: The optimizer steps that were trained for it, over all trials; 0 where nothing was trained.
        examples: The examples that these steps read, for methods whose steps differ in batch size.
        assumption: What has to hold for it, in one sentence.
        reason: Why there is no value or no interval, in one sentence; empty otherwise.
        details: Further lines about the estimate, such as its values at other settings of the method.
    """

    method: str
    quantity: Quantity
    estimate: Estimate
    trial_steps: int
    examples: int
    assumption: str
    reason: str = ""
    details: tuple[str, ...] = ()


def refuse_vague(prediction: Prediction) -> Prediction:
    """Return the prediction, without its value if the ends of its interval are more than a factor of 100 apart."""
    low, high = prediction.estimate.low, prediction.estimate.high
    if prediction.estimate.value is None or not low or not high or high <= MOST_APART * low:
        return prediction
    reason = f"Anything from {span_text(low, high)} is possible, which says nothing."
    return replace(prediction, estimate=Estimate(), reason=reason)
