"""The prediction of a batch size by one method, with its interval, its cost and its assumption."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

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

    def to_json(self) -> dict[str, Any]:
        """Return the keys and values for JSON; batch sizes are in examples."""
        return {
            "method": self.method,
            "quantity": self.quantity,
            "resolved": self.estimate.value is not None,
            "batch_size": self.estimate.value,
            "batch_size_low": self.estimate.low,
            "batch_size_high": self.estimate.high,
            "trial_steps": self.trial_steps,
            "examples": self.examples,
            "assumption": self.assumption,
            "reason": self.reason or None,
            "details": list(self.details),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Prediction":
        """Return the prediction of an object that `to_json` made.

        Raises:
            LookupError: a key is missing.
            ValueError: a value has another type.
        """
        sizes = [values[f"batch_size{end}"] for end in ("", "_low", "_high")]
        if any(size is not None and not (isinstance(size, int | float) and size > 0) for size in sizes):
            raise ValueError(f"a batch size must be a positive number, found {sizes}")
        texts = [values["method"], values["quantity"], values["assumption"], values["reason"] or "", *values["details"]]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a text is missing")
        counts = int(values["trial_steps"]), int(values["examples"])
        return cls(texts[0], texts[1], Estimate(*sizes), *counts, texts[2], texts[3], tuple(texts[4:]))


def refuse_vague(prediction: Prediction) -> Prediction:
    """Return the prediction, without its value if the ends of its interval are more than a factor of 100 apart."""
    low, high = prediction.estimate.low, prediction.estimate.high
    if prediction.estimate.value is None or not low or not high or high <= MOST_APART * low:
        return prediction
    reason = f"Anything from {span_text(low, high)} is possible, which says nothing."
    return replace(prediction, estimate=Estimate(), reason=reason)
