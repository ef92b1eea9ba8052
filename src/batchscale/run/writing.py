"""Records of several studies written at once.

A disk that must confirm every write spends most of its time waiting, and confirms several writes in the time of one.
"""

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from batchscale.study.study_run import StudyRun

THREADS = 16

Written = tuple[StudyRun, Exception | None]
"""A study whose turn it was, and what its writing was stopped by."""


class Writing:
    """Writes what is due. Each study is touched by one thread at a time, and by none when a call has returned."""

    def __init__(self, threads: int = THREADS) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="records")
        self._threads = threads

    def write(self, runs: Sequence[StudyRun], until: float) -> list[Written]:
        """Give each study a turn, as long as the monotonic clock is before ``until``; at least the first ones.

        Those that are not in the answer had no turn.
        """
        waiting, written = deque(runs), deque[Written]()
        if len(runs) <= 1:
            _take_turns(waiting, written, until)
            return list(written)
        threads = min(self._threads, len(runs))
        for taking in [self._pool.submit(_take_turns, waiting, written, until) for _ in range(threads)]:
            taking.result()
        return list(written)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


def _take_turns(waiting: deque[StudyRun], written: deque[Written], until: float) -> None:
    """Write one study after the other, at least one, while others do the same."""
    with contextlib.suppress(IndexError):  # none is left
        while True:
            run = waiting.popleft()
            try:
                run.write_due(until)
            except Exception as error:  # noqa: BLE001 - raised again by whoever asked, in its own thread
                written.append((run, error))
            else:
                written.append((run, None))
            if time.monotonic() >= until:
                return
