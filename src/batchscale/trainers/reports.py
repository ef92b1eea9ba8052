"""The reports of a trial's script, checked: measurements, divergence, saves, and the times between them.

Pure: lines in, `ScriptReports` out. The lines are those of the protocol (docs/trainers.md).
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from batchscale.errors import one_line, suggest_names
from batchscale.spec.goal import Goal
from batchscale.spec.horizon_free import Branches
from batchscale.spec.tokens import MAX_TOKENS_PER_EXAMPLE

METRIC = re.compile(r"(?:train|val|test)/[A-Za-z][A-Za-z0-9_]*")
MAX_METRICS = 1000
MAX_FACT = 200


class ReportFault(Exception):  # noqa: N818 - a fault of a report, described for the user
    """A report that breaks a rule of the protocol."""


@dataclass(frozen=True)
class Stamp:
    """The arrival of a measurement, and the seconds of training and evaluation that the script reports, if any."""

    step: int
    received_at: float
    train_s: float | None = None
    evaluation_s: float | None = None


@dataclass
class ScriptReports:
    """The reports of one attempt so far. ``tokens_per_example`` must be the study's, if that has it."""

    goal: Goal
    tokens_per_example: int | None = None
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
        """The last measured step; -1 before the first measurement."""
        return self.stamps[-1].step if self.stamps else -1

    def update(self, lines: Iterable[Mapping[str, Any]], now: float) -> None:
        """Handle new lines of the protocol.

        Raises:
            ReportFault: a line breaks a rule; the lines before it count.
        """
        for line in lines:
            self.lines += 1
            if self.diverged_at is not None:
                return  # further reports of a diverged trial do not count
            self._handle(line, now)

    def _handle(self, line: Mapping[str, Any], now: float) -> None:
        facts = line.get("facts")
        if isinstance(facts, Mapping):
            self._handle_tokens(facts.get("tokens_per_example"))
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

    def _handle_tokens(self, value: Any) -> None:
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_TOKENS_PER_EXAMPLE:
            raise ReportFault(
                f"'tokens_per_example' must be a whole number from 1 to {MAX_TOKENS_PER_EXAMPLE:,}. Found "
                f"{one_line(repr(value))}."
            )
        if self.tokens_per_example not in (None, value):
            raise ReportFault(
                f"A script must report the tokens_per_example of its experiment, {self.tokens_per_example:,}. Found "
                f"{value:,}. Correct the script, or tokens_per_example in the experiment file."
            )
        self.tokens_per_example = value

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
        raise ReportFault(f"'{name}' must be a whole number of steps from 0. Found {one_line(repr(value))}.")
    return value


def _to_values(metrics: Any, step: int) -> dict[str, float]:
    if not isinstance(metrics, Mapping) or not metrics or len(metrics) > MAX_METRICS:
        raise ReportFault(
            f"A measurement must have 1 to {MAX_METRICS} metrics by name. Found {one_line(repr(metrics))} at step "
            f"{step}."
        )
    values = {}
    for name, value in metrics.items():
        if METRIC.fullmatch(name) is None:
            raise ReportFault(
                "A metric's name must be its split (train, val or test), '/', and letters, digits and _: 'val/error'. "
                f"Found {one_line(repr(name))} at step {step}."
            )
        if value is None:
            value = math.nan
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ReportFault(
                f"A metric must be a number, or null. Found {name} = {one_line(repr(value))} at step {step}."
            )
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


@dataclass(frozen=True)
class Mark:
    """The start of an attempt, or the end of a pause: the next measurement is timed from here."""

    step: int
    at: float


def describe_times(
    stamps: Sequence[Stamp], marks: Sequence[Mark], batch_size: int, branches: Branches | None = None
) -> dict[str, float]:
    """Return the times of an attempt, as our own engine measures them: steady steps apart from the start.

    Everything up to the first measurement of the attempt is warm-up: starting Python, loading data, the first steps.
    If a script does not report its own times, they are those between its reports, evaluation included.

    Args:
        stamps: the attempt's measurements so far.
        marks: the start and the ends of pauses, growing.
        batch_size: for examples per second.
        branches: with branches, a measurement has trained the trunk from where the one before left it.
    """
    if not stamps:
        return {}
    times = {
        "warm_up_s": max(0.0, stamps[0].received_at - marks[0].at),
        "num_steps": float(stamps[-1].step - marks[0].step),
    }
    has_own_times = all(stamp.train_s is not None for stamp in stamps)
    seconds, steps = 0.0, 0
    for before, stamp in pairwise(stamps):
        steps += stamp.step - (branches.start(before.step) if branches else before.step)
        since = max([before.received_at, *(mark.at for mark in marks if mark.at <= stamp.received_at)])
        seconds += (stamp.train_s or 0) - (before.train_s or 0) if has_own_times else stamp.received_at - since
    if not steps and has_own_times and stamps[0].step > marks[0].step:  # a single measurement: take all its steps
        seconds, steps = stamps[0].train_s or 0, stamps[0].step - marks[0].step
    if steps > 0 and seconds > 0:
        times |= {"train_s": seconds, "step_time_s": seconds / steps, "examples_per_s": steps * batch_size / seconds}
    if stamps[-1].evaluation_s is not None:
        times["evaluation_s"] = stamps[-1].evaluation_s / len(stamps)
    return times
