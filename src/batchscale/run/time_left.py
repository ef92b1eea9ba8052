"""How long a run may still take, with what that assumes: given as soon as one batch size has been timed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from batchscale.study.stop_rules.rule import Rule


@dataclass(frozen=True)
class StudyWork:
    """What a study that goes on still has to train, as far as that is known.

    ``steps`` counts all its trials, ``longest`` is the most that one of them needs. ``step_s`` is None for a study
    that was not timed yet.
    """

    batch_size: int
    steps: int
    longest: int
    step_s: float | None


@dataclass(frozen=True)
class TimeLeft:
    """The seconds, and the conditions under which they hold."""

    seconds: float
    assumes: tuple[str, ...] = ()


def estimate_time_left(
    works: Sequence[StudyWork], workers: int, rule: Rule, *, may_repeat: bool = True
) -> TimeLeft | None:
    """The time that the work takes if it is shared evenly by the workers; None while no step was timed.

    A batch size that was not timed is taken to cost what the nearest timed one does: as much per example where it is
    larger, as much per step where it is smaller. Both are on the safe side, as larger batches use a device better.

    >>> from batchscale.study.stop_rules import find_rule
    >>> works = [StudyWork(8, 1000, 100, 0.01), StudyWork(32, 500, 100, None)]
    >>> estimate_time_left(works, 2, find_rule("budget"), may_repeat=False)
    TimeLeft(seconds=15.0, assumes=('batch size 32 costs per example what 8 does',))
    """
    timed = {work.batch_size: work.step_s for work in works if work.step_s is not None}
    if works and not timed:
        return None
    seconds, longest = 0.0, 0.0
    guesses: list[str] = []
    for work in works:
        step_s = timed.get(work.batch_size)
        if step_s is None:
            nearest = min(timed, key=lambda size: abs(math.log(size / work.batch_size)))
            step_s = timed[nearest] * max(1.0, work.batch_size / nearest)
            unit = "example" if work.batch_size > nearest else "step"
            guesses.append(f"batch size {work.batch_size:,} costs per {unit} what {nearest:,} does")
        seconds += step_s * work.steps
        longest = max(longest, step_s * work.longest)  # a trial cannot be shared by workers
    return TimeLeft(
        max(seconds / workers, longest), (*_conditions(works, rule, may_repeat=may_repeat), *_short(guesses))
    )


def _conditions(works: Sequence[StudyWork], rule: Rule, *, may_repeat: bool) -> list[str]:
    if not works:
        return []
    found = ["no further trial reaches the goal"] if rule.hangs_on_goals else []
    return [*found, *(["no study is searched again"] if may_repeat else [])]


def _short(guesses: list[str]) -> list[str]:
    if len(guesses) <= 1:
        return guesses
    return [f"{len(guesses)} batch sizes that were not timed cost what the nearest timed one does"]
