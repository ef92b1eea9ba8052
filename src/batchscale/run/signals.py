"""Signals: they set a flag that the loop checks; a second Ctrl-C exits at once.

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
    """Set by the first signal. As a context manager it installs the handlers, and restores the old ones at the end.

    ``at_deadline`` is called from another thread when the time to stop is over.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._deadline = float("inf")
        self._before: dict[signal.Signals, Any] = {}
        self.at_deadline: Callable[[], None] = lambda: None

    @property
    def is_set(self) -> bool:
        """True if the run should stop."""
        return self.signal is not None

    @property
    def seconds_left(self) -> float:
        """The time that the run may still take to stop."""
        return self._deadline - time.monotonic()

    def set(self, number: signal.Signals) -> None:
        """Set the flag as if the signal had been received."""
        self.signal = self.signal or number
        self._deadline = min(self._deadline, time.monotonic() + _GRACE_S[number])
        # workers end in time even if the main thread is blocked (a slow disk, a long import)
        timer = threading.Timer(_GRACE_S[number], lambda: self.at_deadline())
        timer.daemon = True
        timer.start()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.set(signal.Signals(number))

    def __enter__(self) -> "StopFlag":
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread may install handlers; others set the flag themselves
        for number in _GRACE_S:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup: closing the terminal must not stop the run
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
