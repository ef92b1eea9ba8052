"""The state of a run, from what it last wrote and whether its lock is held: one rule for every place that shows it."""

import time
from dataclasses import replace
from enum import StrEnum

from batchscale.run.snapshot import Snapshot

SILENT_AFTER_S = 30.0


class RunState(StrEnum):
    """How a run that has written a snapshot stands; a silent one holds its lock and has not been heard of lately."""

    RUNNING = "running"
    SILENT = "silent"
    STOPPED = "stopped"
    FINISHED = "finished"


def find_state(snapshot: Snapshot, *, running: bool) -> tuple[Snapshot, RunState]:
    """What holds now of the last snapshot, and the state; ``running`` is whether a process holds the run's lock."""
    if snapshot.finished:
        return snapshot, RunState.FINISHED
    if not running:  # then nothing is in training, whatever was the last that was heard
        studies = tuple(replace(study, running=0) for study in snapshot.studies)
        return replace(snapshot, studies=studies, time_left_s=None, doing=()), RunState.STOPPED
    # a clock that was set back must not make a silent run look alive for hours: the distance counts, not the sign
    if abs(time.time() - snapshot.written_at) > SILENT_AFTER_S:
        return snapshot, RunState.SILENT
    return snapshot, RunState.RUNNING
