"""Signals: they set a flag that the driver looks at; a second Ctrl-C leaves at once.

SIGTERM, SIGUSR1 and SIGHUP are what schedulers and closing terminals send: there is time to checkpoint. Ctrl-C means
soon.
"""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

_GRACE_S = {signal.SIGINT: 1.0, signal.SIGTERM: 20.0, signal.SIGUSR1: 20.0, signal.SIGHUP: 20.0}


class StopFlag:
    """Set by the first signal. As a context manager it holds the handlers; the old ones come back at the end.

    ``at_deadline`` is called from another thread when the time to stop is over.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._deadline = float("inf")
        self._before: dict[signal.Signals, Any] = {}
        self.at_deadline: Callable[[], None] = lambda: None

    @property
    def is_set(self) -> bool:
        """Whether the run should stop."""
        return self.signal is not None

    @property
    def seconds_left(self) -> float:
        """How long the run may still take to stop."""
        return self._deadline - time.monotonic()

    def set(self, number: signal.Signals) -> None:
        """Ask to stop, as if the signal had come."""
        self.signal = self.signal or number
        self._deadline = min(self._deadline, time.monotonic() + _GRACE_S[number])
        # whatever the main thread is held up by (a slow disk, a long import), workers end in time
        timer = threading.Timer(_GRACE_S[number], lambda: self.at_deadline())
        timer.daemon = True
        timer.start()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.set(signal.Signals(number))

    def __enter__(self) -> "StopFlag":
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread may hold handlers; others set the flag themselves
        for number in _GRACE_S:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup: closing the terminal is not to stop the run
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
