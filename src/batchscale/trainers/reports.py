"""What a trial has reported: its measurements, where it diverged, what it saved, and what was wrong with it.

Pure: lines in, knowledge out. A later attempt replaces what an earlier one said of the same steps and later ones.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from batchscale.errors import one_line, suggest_names
from batchscale.spec.goal import Goal

METRIC = re.compile(r"(?:train|val|test)/[A-Za-z][A-Za-z0-9_]*")
MAX_METRICS = 1000
MAX_FACT = 200


class ReportFault(Exception):  # noqa: N818 - a fault of what was reported, in words for the user
    """A report that breaks a rule of the protocol."""


@dataclass(frozen=True)
class Stamp:
    """When a measurement came, and the seconds of training and measuring until then, if the script says so."""

    step: int
    heard_at: float
    train_s: float | None = None
    evaluation_s: float | None = None


@dataclass
class Heard:
    """What one attempt has said so far."""

    goal: Goal
    rows: dict[int, dict[str, float]] = field(default_factory=dict)
    diverged_at: int | None = None
    last_step: int | None = None
    saved: int | None = None
    saves: int = 0
    restored: int | None = None
    paused: int | None = None
    can_save: bool = False
    facts: dict[str, str] = field(default_factory=dict)
    stamps: list[Stamp] = field(default_factory=list)
    lines: int = 0

    @property
    def step(self) -> int:
        """The last step that was measured; -1 before."""
        return self.stamps[-1].step if self.stamps else -1

    def take(self, lines: Iterable[Mapping[str, Any]], now: float) -> None:
        """Take in lines of the protocol.

        Raises:
            ReportFault: a line breaks a rule; what came before it counts.
        """
        for line in lines:
            self.lines += 1
            if self.diverged_at is not None:
                return  # whatever a diverged trial still says
            self._take(line, now)

    def _take(self, line: Mapping[str, Any], now: float) -> None:
        facts = line.get("facts")
        if isinstance(facts, Mapping):
            self.facts |= {str(n)[:50]: one_line(v, MAX_FACT) for n, v in list(facts.items())[:20]}
        if "saved" in line:
            self.saved, self.saves = _whole(line["saved"], "saved"), self.saves + 1
        if "restored" in line:
            self.restored = _whole(line["restored"], "restored")
        if "paused" in line:
            self.paused, self.can_save = _whole(line["paused"], "paused"), line.get("can_save") is True
        if "step" in line:
            self._measure(line, now)
        if "diverged" in line:
            self.diverged_at = max(1, _whole(line["diverged"], "diverged"))
        if "last" in line:
            self.last_step = _whole(line["last"], "last")

    def _measure(self, line: Mapping[str, Any], now: float) -> None:
        step = _whole(line["step"], "step")
        if step < self.step:
            raise ReportFault(
                f"Steps must grow within an attempt. Found a measurement at step {step} after {self.step}."
            )
        values = _to_values(line.get("metrics"), step)
        if self.goal.metric not in values:
            raise ReportFault(
                f"A measurement must have the goal's metric '{self.goal.metric}'. Found "
                f"{one_line(sorted(values) or 'no metric', 200)} at step {step}; "
                f"{suggest_names(self.goal.metric, values)}"
            )
        self.paused = None
        self.stamps.append(Stamp(step, now, _seconds(line.get("train_s")), _seconds(line.get("evaluation_s"))))
        if math.isfinite(values[self.goal.metric]):
            self.rows[step] = values
        else:
            self.diverged_at = max(1, step)


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ReportFault(f"'{name}' is a whole number of steps from 0. Found {one_line(repr(value))}.")
    return value


def _to_values(metrics: Any, step: int) -> dict[str, float]:
    if not isinstance(metrics, Mapping) or not metrics or len(metrics) > MAX_METRICS:
        raise ReportFault(
            f"A measurement has 1 to {MAX_METRICS} metrics by name. Found {one_line(repr(metrics))} at step {step}."
        )
    values = {}
    for name, value in metrics.items():
        if METRIC.fullmatch(name) is None:
            raise ReportFault(
                "A metric's name is its split (train, val or test), '/', and letters, digits and _: 'val/error'. "
                f"Found {one_line(repr(name))} at step {step}."
            )
        if value is None:
            value = math.nan
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ReportFault(f"A metric is a number, or null. Found {name} = {one_line(repr(value))} at step {step}.")
        values[name] = _to_float(value)
    return values


def _to_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e10:
        return None
    return float(value)
