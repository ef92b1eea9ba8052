"""The progress of a run: a live table in a terminal, one plain line at a time elsewhere, and the text of both."""

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Protocol, TextIO

from batchscale.formatting import count_text, duration, metaparameter_text, rate, rough_duration, span_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import Console, RenderableType
    from rich.table import Table

    from batchscale.run.session import RunOutcome
    from batchscale.run.settings import RunSettings
    from batchscale.run.signals import StopFlag
    from batchscale.run.status import NewSearch, RunStatus, StudyStatus, WorkerStatus
    from batchscale.spec.plan import Plan

PLAIN_EVERY_S = 10.0
MOST_WORKERS = 4
"""Up to this many workers are listed one by one; more are counted by activity."""


def run_with_progress(
    plan: "Plan",
    out: "Path",
    settings: "RunSettings",
    quiet: bool,
    stop: "StopFlag | None" = None,
    on_change: "Callable[[RunStatus], None]" = lambda _run_status: None,
) -> "RunOutcome":
    """Run a plan and display its progress on standard error; ``on_change`` gets every status too."""
    display = make_display(quiet)

    def show(run_status: "RunStatus") -> None:
        display.show(run_status)
        on_change(run_status)

    try:
        if plan.experiment.adaptive is None:  # without the half second that loading the predictions takes
            from batchscale.run.session import run_plan

            return run_plan(plan, out, settings, show, stop)
        from batchscale.adaptive.rounds import run_experiment

        return run_experiment(plan, out, settings, show, stop)
    finally:
        display.close()


class Display(Protocol):
    """A display of the status of a run."""

    def show(self, run_status: "RunStatus") -> None:
        """Show a status."""

    def close(self) -> None:
        """End the display."""


def make_display(quiet: bool = False) -> Display:
    """Return the display for standard error: a live table in a terminal, else plain lines."""
    if not quiet and sys.stderr.isatty():
        return LiveDisplay()
    return PlainDisplay(sys.stderr, quiet=quiet)


class PlainDisplay:
    """Prints a line for each event (a new search, a finished study, a pause, a notice) and the state now and then.

    The number of infeasible trials of a study is printed at most once in ``every_s``. A quiet display prints pauses and
    notices only.
    """

    def __init__(self, stream: TextIO, every_s: float = PLAIN_EVERY_S, *, quiet: bool = False) -> None:
        self._stream = stream
        self._every_s = every_s
        self._quiet = quiet
        self._printed: set[str] = set()
        self._last = -float("inf")
        self._diverged: dict[int, tuple[int, float]] = {}  # by batch size: the printed count, and the time

    def show(self, run_status: "RunStatus") -> None:
        """Print what is new."""
        for text in (run_status.paused, run_status.notice):
            for line in (text or "").splitlines():
                self._print_once(line)
        if self._quiet:
            return
        for line in event_lines(run_status):
            self._print_once(line)
        now = time.monotonic()
        self._show_diverged(run_status, now)
        if now - self._last >= self._every_s and not run_status.finished:
            self._last = now
            self._print("  ".join([describe_run(run_status), *describe_workers(run_status)]))

    def close(self) -> None:
        """Do nothing."""

    def _show_diverged(self, run_status: "RunStatus", now: float) -> None:
        for study in run_status.studies:
            count, printed_at = self._diverged.get(study.batch_size, (0, -float("inf")))
            if study.diverged > count and not study.done and now - printed_at >= self._every_s:
                self._diverged[study.batch_size] = (study.diverged, now)
                self._print(f"batch size {study.batch_size}: {study.diverged} infeasible so far (training diverged)")

    def _print_once(self, line: str) -> None:
        if line not in self._printed:
            self._printed.add(line)
            self._print(line)

    def _print(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


class LiveDisplay:
    """A table in a terminal that is redrawn in place; event lines stay above it."""

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=console or Console(stderr=True), auto_refresh=False, transient=True)
        self._printed: set[str] = set()
        self._live.start()

    def show(self, run_status: "RunStatus") -> None:
        """Redraw the table."""
        for line in event_lines(run_status):
            if line not in self._printed:
                self._printed.add(line)
                self._live.console.print(line, markup=False, highlight=False)
        self._live.update(draw_status(run_status), refresh=True)

    def close(self) -> None:
        """Remove the table: the result follows."""
        self._live.stop()


def draw_status(run_status: "RunStatus", headline: str | None = None) -> "RenderableType":
    """Return a headline, a table with a row per study, and the activities of the workers."""
    from rich.console import Group
    from rich.text import Text

    lines: list[RenderableType] = [Text(headline or describe_run(run_status))]
    lines.extend(Text(text, style="yellow") for text in (run_status.paused, run_status.notice) if text)
    workers = [Text(line, style="dim") for line in describe_workers(run_status)]
    return Group(*lines, _draw_studies(run_status), *map(Text, run_status.choices[-1:]), *workers)


def _draw_studies(run_status: "RunStatus") -> "Table":
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("batch size", "search", "trials", "infeasible", "reached", "best steps"):
        table.add_column(name, justify="right")
    table.add_column("", min_width=24)
    for study in run_status.studies:
        bar = ProgressBar(total=1.0, completed=study.share, width=24)
        trials = f"{study.complete}/{study.all_wanted}" + (f" +{study.running}" if study.running else "")
        best = "-" if study.best_steps is None else f"{study.best_steps:,}"
        row = (
            f"{study.batch_size:,}",
            str(study.search),
            trials,
            str(_num_infeasible(study)),
            str(study.reached),
            best,
        )
        table.add_row(*row, f"done{f'; {study.note}' if study.note else ''}" if study.done else bar)
    return table


def describe_run(run_status: "RunStatus") -> str:
    """Return one line: elapsed time, finished studies, trials, speed, time left and failures."""
    done = sum(study.done for study in run_status.studies)
    complete = sum(study.complete for study in run_status.studies)
    infeasible = sum(_num_infeasible(study) for study in run_status.studies)
    incomplete = sum(study.incomplete for study in run_status.studies)
    running = sum(study.running for study in run_status.studies)
    failed = f" {incomplete} incomplete," if incomplete else ""
    parts = [
        f"{duration(run_status.elapsed_s)}",
        f"{done} of {count_text(len(run_status.studies), 'study', 'studies')} done",
        f"trials {complete} complete, {infeasible} infeasible,{failed} {running} in training",
        rate(run_status.steps_per_s, "steps"),
    ]
    if run_status.time_left_s is not None and not run_status.finished:
        conditions = f" if {' and '.join(run_status.time_left_assumes)}" if run_status.time_left_assumes else ""
        parts.append(f"{rough_duration(run_status.time_left_s)} left{conditions}")
    if run_status.failures:
        parts.append("worker failures: " + ", ".join(f"{n} {kind}" for kind, n in run_status.failures.items()))
    return "  ".join(parts)


def _num_infeasible(study: "StudyStatus") -> int:
    """Return the diverged trials, recorded or not; the status of an older version has only the recorded ones."""
    return max(study.infeasible, study.diverged)


def describe_workers(run_status: "RunStatus") -> list[str]:
    """Return a line per worker; for many workers one line with a count per activity."""
    if len(run_status.doing) <= MOST_WORKERS:
        return [_describe_worker(worker) for worker in run_status.doing]
    counts = Counter(worker.activity for worker in run_status.doing)
    return ["workers: " + ", ".join(f"{count} {activity}" for activity, count in counts.most_common())]


def _describe_worker(worker: "WorkerStatus") -> str:
    name = f"worker {worker.worker}"
    if worker.batch_size is None:
        return f"{name}: {worker.activity}"
    setup = {"loading": "loading data and setting up", "compiling": "compiling"}.get(worker.activity)
    where = f"batch size {worker.batch_size:,}"
    if setup is not None:
        return f"{name}: {setup} for {where}, for {duration(worker.seconds)}"
    step = f"step {worker.step:,} of {worker.train_steps:,}"
    return f"{name}: {worker.activity} {_describe_trials(worker.trials)} of {where}, {step}"


def _describe_trials(trials: tuple[int, ...]) -> str:
    if len(trials) == 1:
        return f"trial {trials[0]}"
    if list(trials) == list(range(trials[0], trials[0] + len(trials))):
        return f"trials {trials[0]} to {trials[-1]}"
    return f"{len(trials)} trials"


def event_lines(run_status: "RunStatus") -> list[str]:
    """Return the lines that are printed once: rounds of an adaptive experiment, new searches and finished studies."""
    lines = list(run_status.choices)
    for study in run_status.studies:
        lines += [_describe_search(study, search) for search in study.new_searches]
        if study.done:
            lines.append(f"batch size {study.batch_size}: {_describe_study(study)}")
    return lines


def _describe_search(study: "StudyStatus", search: "NewSearch") -> str:
    """Return the reason for another search of a study, and its ranges."""

    def text(ends: tuple[float, float]) -> str:
        return span_text(*ends, metaparameter_text)

    moved = [f"{change.parameter} {text(change.before)} → {text(change.after)}" for change in search.changes]
    ranges = "; ".join(moved) or "the same ranges with fresh points"
    return f"batch size {study.batch_size}: search {search.search} begins, because {search.reason}: {ranges}"


def _describe_study(study: "StudyStatus") -> str:
    best = "the goal was not reached" if study.best_steps is None else f"goal reached after {study.best_steps:,} steps"
    counts = f"{study.complete} complete, {study.infeasible} infeasible"
    counts += f", {study.incomplete} incomplete" if study.incomplete else ""
    return f"{best} ({counts}{f'; {study.note}' if study.note else ''})"
