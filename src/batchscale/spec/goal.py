"""The goal of an experiment: a metric, a direction and the value that must be passed.

Owns the goal's text form. The metrics that a workload reports are checked in ``plan``.
"""

import math
import re
from dataclasses import dataclass

from batchscale.errors import SpecError, one_line

SPLITS = ("train", "val", "test")

_METRIC = r"(?:train|val|test)/[A-Za-z][A-Za-z0-9_]*"
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_GOAL = re.compile(rf"\s*(?P<metric>{_METRIC})\s*(?P<sign>[<>])\s*(?P<value>{_NUMBER})\s*")
_EXAMPLE = '"val/classification_error < 0.1" (use > for a metric to maximise)'


@dataclass(frozen=True)
class Goal:
    """A goal out-of-sample error: reached by a measurement strictly beyond ``value``.

    >>> goal = Goal.parse("val/classification_error < 0.1")
    >>> goal.is_reached_by(0.1), goal.is_reached_by(0.0999)
    (False, True)
    >>> str(goal)
    'val/classification_error < 0.1'
    """

    metric: str
    value: float
    maximize: bool = False

    @classmethod
    def parse(cls, text: object) -> "Goal":
        """Parse a goal written as ``split/metric < number`` or ``split/metric > number``."""
        match = _GOAL.fullmatch(text) if isinstance(text, str) and len(text) <= 200 else None
        if match is None or not math.isfinite(float(match["value"])):
            raise SpecError(
                f"A goal must be a metric of a split (train, val or test), '<' or '>', and a finite number: "
                f"{_EXAMPLE}. Found {one_line(repr(text))}."
            )
        return cls(match["metric"], float(match["value"]), match["sign"] == ">")

    @property
    def split(self) -> str:
        """The split that is measured: train, val or test."""
        return self.metric.partition("/")[0]

    @property
    def metric_name(self) -> str:
        """The metric without its split."""
        return self.metric.partition("/")[2]

    def is_reached_by(self, value: float) -> bool:
        """True if a measured value is strictly beyond the goal; NaN never is."""
        return value > self.value if self.maximize else value < self.value

    def __str__(self) -> str:
        return f"{self.metric} {'>' if self.maximize else '<'} {self.value:.12g}"
