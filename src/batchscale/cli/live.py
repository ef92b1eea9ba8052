"""How a run is shown while it goes on: a live table in a terminal, one plain line at a time elsewhere."""

import sys
import time
from typing import TYPE_CHECKING, Protocol, TextIO

from batchscale.cli.run_words import announcements, describe_diverged, describe_run, describe_workers

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from batchscale.run.snapshot import Snapshot

PLAIN_EVERY_S = 10.0


class Display(Protocol):
    """Something that shows snapshots until it is closed."""

    def show(self, snapshot: "Snapshot") -> None:
        """Show how the run stands."""

    def close(self) -> None:
        """Show no more."""


def make_display(quiet: bool = False) -> Display:
    """The display for standard error as it is: a terminal, a pipe or a log."""
    if not quiet and sys.stderr.isatty():
        return LiveDisplay()
    return PlainDisplay(sys.stderr, quiet=quiet)


class PlainDisplay:
    """A line when something happened: a new search, a study that is done, a pause, a notice; otherwise now and then.

    Infeasible trials are told as they happen, of each study at most once in ``every_s``. A quiet display tells pauses
    and notices only.
    """

    def __init__(self, stream: TextIO, every_s: float = PLAIN_EVERY_S, *, quiet: bool = False) -> None:
        self._stream = stream
        self._every_s = every_s
        self._quiet = quiet
        self._told: set[str] = set()
        self._last = -float("inf")
        self._diverged: dict[int, tuple[int, float]] = {}  # by batch size: how many were told, and when

    def show(self, snapshot: "Snapshot") -> None:
        """Print what is new."""
        for text in (snapshot.paused, snapshot.notice):
            if text:
                self._once(text)
        if self._quiet:
            return
        for line in announcements(snapshot):
            self._once(line)
        now = time.monotonic()
        self._show_diverged(snapshot, now)
        if now - self._last >= self._every_s and not snapshot.finished:
            self._last = now
            self._print("  ".join([describe_run(snapshot), *describe_workers(snapshot)]))

    def close(self) -> None:
        """Nothing to do."""

    def _show_diverged(self, snapshot: "Snapshot", now: float) -> None:
        for study in snapshot.studies:
            told, at = self._diverged.get(study.batch_size, (0, -float("inf")))
            if study.diverged > told and not study.done and now - at >= self._every_s:
                self._diverged[study.batch_size] = (study.diverged, now)
                self._print(describe_diverged(study))

    def _once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._print(line)

    def _print(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


class LiveDisplay:
    """A table that is drawn over and over in a terminal; announcements stay above it."""

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=console or Console(stderr=True), auto_refresh=False, transient=True)
        self._told: set[str] = set()
        self._live.start()

    def show(self, snapshot: "Snapshot") -> None:
        """Draw the table."""
        for line in announcements(snapshot):
            if line not in self._told:
                self._told.add(line)
                self._live.console.print(line, markup=False, highlight=False)
        self._live.update(draw_snapshot(snapshot), refresh=True)

    def close(self) -> None:
        """Take the table away: the closing words follow."""
        self._live.stop()


def draw_snapshot(snapshot: "Snapshot", headline: str | None = None) -> "RenderableType":
    """The run as a headline, a table with a row per study, and what the workers do."""
    from rich.console import Group
    from rich.text import Text

    lines: list[RenderableType] = [Text(headline or describe_run(snapshot))]
    lines.extend(Text(text, style="yellow") for text in (snapshot.paused, snapshot.notice) if text)
    workers = [Text(line, style="dim") for line in describe_workers(snapshot)]
    return Group(*lines, _draw_studies(snapshot), *workers)


def _draw_studies(snapshot: "Snapshot") -> "Table":
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("batch size", "search", "trials", "infeasible", "reached", "best steps"):
        table.add_column(name, justify="right")
    table.add_column("", min_width=24)
    for study in snapshot.studies:
        bar = ProgressBar(total=1.0, completed=study.share, width=24)
        trials = f"{study.complete}/{study.wanted * study.search}" + (f" +{study.running}" if study.running else "")
        best = "-" if study.best_steps is None else f"{study.best_steps:,}"
        infeasible = max(study.infeasible, study.diverged)
        row = (f"{study.batch_size:,}", str(study.search), trials, str(infeasible), str(study.reached), best)
        table.add_row(*row, f"done{f'; {study.note}' if study.note else ''}" if study.done else bar)
    return table
