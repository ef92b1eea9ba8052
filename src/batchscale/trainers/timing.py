"""Step time of a trial from its reports, as our own engine measures it: steady steps apart from the start."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from batchscale.trainers.reports import Stamp


@dataclass(frozen=True)
class Mark:
    """From when the next measurement counts: the start of an attempt, or the end of a pause."""

    step: int
    at: float


def describe_times(stamps: Sequence[Stamp], marks: Sequence[Mark], batch_size: int) -> dict[str, float]:
    """The times of an attempt's measurements.

    Everything up to the first measurement of the attempt is warm-up: starting Python, loading data, the first steps.
    Where a script does not tell its own times, they are those between its reports, evaluation included.

    Args:
        stamps: the attempt's measurements so far.
        marks: when it started and when it went on after pauses, growing.
        batch_size: for examples per second.
    """
    if not stamps:
        return {}
    found = {
        "warm_up_s": max(0.0, stamps[0].heard_at - marks[0].at),
        "num_steps": float(stamps[-1].step - marks[0].step),
    }
    told = all(stamp.train_s is not None for stamp in stamps)
    seconds, steps = 0.0, 0
    for before, stamp in pairwise(stamps):
        steps += stamp.step - before.step
        since = max([before.heard_at, *(mark.at for mark in marks if mark.at <= stamp.heard_at)])
        seconds += (stamp.train_s or 0) - (before.train_s or 0) if told else stamp.heard_at - since
    if not steps and told and stamps[0].step > marks[0].step:  # one measurement only: its steps are all there are
        seconds, steps = stamps[0].train_s or 0, stamps[0].step - marks[0].step
    if steps > 0 and seconds > 0:
        found |= {"train_s": seconds, "step_time_s": seconds / steps, "examples_per_s": steps * batch_size / seconds}
    if stamps[-1].evaluation_s is not None:
        found["evaluation_s"] = stamps[-1].evaluation_s / len(stamps)
    return found
