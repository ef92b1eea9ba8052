"""How a run is shown while it goes on: a live table in a terminal, one plain line at a time elsewhere."""

import sys
import time
from typing import TYPE_CHECKING, Protocol, TextIO

from batchscale.words import duration

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from batchscale.driver.snapshot import Snapshot, StudySnapshot

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
    """A line when something happened: a study is done, a pause, a notice; otherwise now and then.

    A quiet one tells pauses and notices only.
    """

    def __init__(self, stream: TextIO, every_s: float = PLAIN_EVERY_S, *, quiet: bool = False) -> None:
        self._stream = stream
        self._every_s = every_s
        self._quiet = quiet
        self._told: set[str] = set()
        self._last = -float("inf")

    def show(self, snapshot: "Snapshot") -> None:
        """Print what is new."""
        for text in (snapshot.paused, snapshot.notice):
            if text:
                self._once(text)
        if self._quiet:
            return
        for study in snapshot.studies:
            if study.done:
                self._once(f"batch size {study.batch_size}: {describe_study(study)}")
        now = time.monotonic()
        if now - self._last >= self._every_s and not snapshot.finished:
            self._last = now
            self._print(describe_run(snapshot))

    def close(self) -> None:
        """Nothing to do."""

    def _once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._print(line)

    def _print(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


class LiveDisplay:
    """A table that is drawn over and over in a terminal."""

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=console or Console(stderr=True), auto_refresh=False, transient=True)
        self._live.start()

    def show(self, snapshot: "Snapshot") -> None:
        """Draw the table."""
        self._live.update(draw_snapshot(snapshot), refresh=True)

    def close(self) -> None:
        """Take the table away: the closing words follow."""
        self._live.stop()


def draw_snapshot(snapshot: "Snapshot", headline: str | None = None) -> "RenderableType":
    """The run as a headline and a table with a row per study."""
    from rich.console import Group
    from rich.text import Text

    lines: list[RenderableType] = [Text(headline or describe_run(snapshot))]
    lines.extend(Text(text, style="yellow") for text in (snapshot.paused, snapshot.notice) if text)
    return Group(*lines, _draw_studies(snapshot))


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
        row = (f"{study.batch_size:,}", str(study.search), trials, str(study.infeasible), str(study.reached), best)
        table.add_row(*row, f"done{f'; {study.note}' if study.note else ''}" if study.done else bar)
    return table


def describe_run(snapshot: "Snapshot") -> str:
    """One line: what is done, how fast, how long it may still take, and what went wrong."""
    done = sum(study.done for study in snapshot.studies)
    complete = sum(study.complete for study in snapshot.studies)
    infeasible = sum(study.infeasible for study in snapshot.studies)
    incomplete = sum(study.incomplete for study in snapshot.studies)
    running = sum(study.running for study in snapshot.studies)
    failed = f" {incomplete} incomplete," if incomplete else ""
    parts = [
        f"{duration(snapshot.elapsed_s)}",
        f"{done} of {len(snapshot.studies)} studies done",
        f"trials {complete} complete, {infeasible} infeasible,{failed} {running} in training",
        f"{snapshot.steps_per_s:,.0f} steps/s",
    ]
    if snapshot.time_left_s is not None and not snapshot.finished:
        parts.append(f"at most {duration(snapshot.time_left_s)} left")
    if snapshot.failures:
        parts.append("failures of workers: " + ", ".join(f"{n} {kind}" for kind, n in snapshot.failures.items()))
    return "  ".join(parts)


def describe_study(study: "StudySnapshot") -> str:
    """A finished study in a few words."""
    best = "the goal was not reached" if study.best_steps is None else f"goal reached after {study.best_steps:,} steps"
    counts = f"{study.complete} complete, {study.infeasible} infeasible"
    counts += f", {study.incomplete} incomplete" if study.incomplete else ""
    return f"{best} ({counts}{f'; {study.note}' if study.note else ''})"
