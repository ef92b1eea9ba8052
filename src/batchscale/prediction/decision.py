"""The choice of a configuration (machine, hosts, batch size) over the laws that the points of a curve allow.

A configuration takes a + b S seconds or money, S the steps to result at its batch size. The choice is the best one by
the best law. Under another law of the set it may be worse than the best one there by a factor, its regret. The largest
regret over all laws is the doubt: no other configuration may be better by more. If law T were true, the choice would
be the best one by T, so that the doubt to expect after a measurement is the largest regret of that choice over the laws
that are left.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from batchscale.analysis.confidence_set import ConfidenceSet
from batchscale.analysis.curves import Array
from batchscale.analysis.intervals import Estimate
from batchscale.formatting import duration, list_sizes, rounded_text
from batchscale.prediction.quantities import OpenQuestion, Spread, factor_text
from batchscale.spec.adaptive import Aim

_BETTER = {Aim.FASTEST_CONFIGURATION: "faster", Aim.CHEAPEST_CONFIGURATION: "cheaper"}
_MOST = float(np.log(1e6))  # a regret beyond which it makes no difference how large it is


@dataclass(frozen=True)
class Configuration:
    """A machine with a number of hosts at a batch size: its amount (seconds or money) is ``fixed`` + ``per_step`` S."""

    place: str
    batch_size: int
    fixed: float
    per_step: float

    def __str__(self) -> str:
        return f"{self.place} with batch size {self.batch_size:,}"


@final
@dataclass(frozen=True)
class DecisionQuestion(OpenQuestion):
    """The best of these configurations by time, or by cost in ``unit``.

    ``unreached`` are batch sizes at which the goal was not reached: their configurations do not count. ``notices`` are
    warnings about the inputs, such as old prices.
    """

    quantity: Aim
    configurations: tuple[Configuration, ...]
    unit: str
    unreached: tuple[int, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def usable(self) -> tuple[Configuration, ...]:
        """The configurations that count."""
        return tuple(each for each in self.configurations if each.batch_size not in self.unreached)

    @property
    def problem(self) -> str:
        """That no configuration has a batch size at which the goal may be reached."""
        if self.usable:
            return ""
        sizes = sorted({each.batch_size for each in self.configurations})
        return f"no configuration is left: the goal was not reached at {list_sizes(sizes)}, the sizes of the machines"

    def without(self, batch_sizes: Collection[int]) -> "DecisionQuestion":
        """Return the question without the configurations of these batch sizes."""
        return replace(self, unreached=tuple(sorted(batch_sizes)))

    def spread(self, laws: ConfidenceSet) -> "DecisionSpread":
        """Return the regrets of the configurations that are best by some law."""
        usable = self.usable
        sizes, places = np.unique([float(each.batch_size) for each in usable], return_inverse=True)
        logs = np.concatenate([laws.best_log_steps(sizes)[None], laws.log_steps(sizes)])
        fixed, per_step = np.array([[each.fixed, each.per_step] for each in usable]).T
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            amounts = fixed + per_step * np.exp(logs)[:, places]
            rivals, choices = np.unique(amounts.argmin(axis=1), return_inverse=True)
            regrets = np.log(amounts[:, rivals] / amounts.min(axis=1, keepdims=True))
        # A law without steps at any of these sizes says nothing.
        regrets = np.clip(np.nan_to_num(regrets, nan=0.0, posinf=_MOST), 0.0, _MOST)
        amount = self._amount_text(float(amounts[0].min()))
        return DecisionSpread(self, tuple(usable[i] for i in rivals), regrets[1:], choices[1:], int(choices[0]), amount)

    def _amount_text(self, amount: float) -> str:
        return duration(amount) if self.quantity is Aim.FASTEST_CONFIGURATION else f"{rounded_text(amount)} {self.unit}"


@final
class DecisionSpread(Spread):
    """The regret of each configuration that is best by some law, under every law."""

    def __init__(
        self,
        question: DecisionQuestion,
        rivals: tuple[Configuration, ...],
        regrets: Array,
        choices: NDArray[np.intp],
        choice: int,
        amount: str,
    ) -> None:
        self.regrets, self.choices, self.choice = regrets, choices, choice
        self.rivals, self.amount = rivals, amount
        sizes = [each.batch_size for each in rivals]
        self.interval = Estimate(float(rivals[choice].batch_size), float(min(sizes)), float(max(sizes)))
        self.needed_size = rivals[choice].batch_size
        self.label, self.better = question.quantity.label, _BETTER[question.quantity]
        self.subject = f"the doubt between {rivals[choice]} and {self.rival}" if len(rivals) > 1 else "the doubt"

    @property
    def rival(self) -> Configuration:
        """The configuration that may be better than the choice by most."""
        return self.rivals[int(self.choices[self.regrets[:, self.choice].argmax()])]

    def width(self, left: NDArray[np.bool_] | None = None) -> float:
        """Return the largest regret of the choice."""
        regrets = self.regrets[:, self.choice]
        return float((regrets if left is None else regrets[left]).max(initial=0.0))

    def widths(self, left: NDArray[np.bool_], truths: NDArray[np.intp]) -> Array:
        """Return the largest regret of the best configuration of each truth."""
        return np.asarray(np.where(left, self.regrets[:, self.choices[truths]].T, 0.0).max(axis=1))

    def describe(self, reached: float | None = None) -> str:
        """Return the choice, and what may be better."""
        text = f"the {self.label} is {self.rivals[self.choice]}, about {self.amount}"
        if reached is not None:
            return f"{text}; no other may be {self.better} by more than a factor of {reached:g}"
        if self.width() <= 0:
            return f"{text}, by every law that agrees with the points"
        return f"{text}; {self.rival} may be {self.better} by {factor_text(self.width())}"
