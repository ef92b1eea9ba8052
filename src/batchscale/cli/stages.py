"""What a command is doing when it takes longer than a moment: a line on standard error now and then, nothing before."""

import threading
import time
from types import TracebackType

import typer

QUIET_S = 2.0  # what ends within this time says nothing
EVERY_S = 5.0


class Stages:
    """Names the stage that a command is in, once it has taken two seconds and every five seconds from then on."""

    def __init__(self, quiet_s: float = QUIET_S, every_s: float = EVERY_S) -> None:
        self._quiet_s, self._every_s = quiet_s, every_s
        self._stage = "working"
        self._start = time.perf_counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._talk, daemon=True)

    def __enter__(self) -> "Stages":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def enter(self, stage: str) -> None:
        """From here on the command does this, said in the form "drawing 24 panels"."""
        self._stage = stage

    def _talk(self) -> None:
        wait_s = self._quiet_s
        while not self._ended.wait(wait_s):
            typer.echo(f"{time.perf_counter() - self._start:.0f} s: {self._stage} …", err=True)
            wait_s = self._every_s
