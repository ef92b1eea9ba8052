"""A run as a whole: the loop that feeds workers and keeps records, its checks, its signals, and how it stands.

What other packages use stands here and is loaded when first used.
"""

from batchscale.doors import lazy_names

_PUBLIC = {
    "NewSearch": "snapshot",
    "Result": "driver",
    "RunOutcome": "session",
    "RunSettings": "run_settings",
    "RunState": "run_state",
    "Show": "single_trial",
    "SingleTrial": "single_trial",
    "Snapshot": "snapshot",
    "StopFlag": "signals",
    "StudySnapshot": "snapshot",
    "WATERMARK_BYTES": "disk",
    "WorkerSnapshot": "snapshot",
    "export_instrument": "instruments",
    "find_facts": "preflight",
    "find_state": "run_state",
    "follow_run": "place_runner",
    "is_held": "snapshot",
    "is_running": "snapshot",
    "make_checked_plan": "preflight",
    "mirrored": "mirroring",
    "read_snapshot": "snapshot",
    "records_bytes": "disk",
    "run_plan": "session",
    "train_single": "single_trial",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = lazy_names(__name__, _PUBLIC)
