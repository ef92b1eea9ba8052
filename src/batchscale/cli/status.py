"""``batchscale status``: how a run stands, from another terminal. Reads only; nothing waits for it."""

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchscale.cli.live import PlainDisplay, draw_snapshot
from batchscale.cli.output import print_json, print_json_line, print_table
from batchscale.cli.run_words import describe_run, describe_workers
from batchscale.formatting import percent_text

if TYPE_CHECKING:
    from batchscale.run.snapshot import Snapshot

WATCH_EVERY_S = 1.0
VERSION = 1
ENDED = ("finished", "stopped")


def status(
    folder: Annotated[Path, typer.Argument(help="The folder of the records.")],
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing it until the run ends.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object; with --watch one on a line each second.")
    ] = False,
) -> None:
    """Show how a run stands: running, silent, stopped or finished; trials, best steps, workers, time left."""
    if watch:
        _watch(folder, as_json=as_json)
        return
    snapshot, state = _look(folder)
    if as_json:
        print_json(_to_json(snapshot, state))
    else:
        _print(snapshot, state)


def _to_json(snapshot: "Snapshot", state: str) -> dict[str, Any]:
    return {"version": VERSION, "state": state, "heard_at": _utc(snapshot.written_at), **snapshot.to_json()}


def _look(folder: Path) -> "tuple[Snapshot, str]":
    from batchscale.errors import RunError
    from batchscale.run.run_state import find_state
    from batchscale.run.snapshot import is_running, read_snapshot
    from batchscale.study.identity import read_asked

    snapshot = read_snapshot(folder)
    running = is_running(folder)
    if snapshot is None:
        hint = "Start one with 'batchscale run FILE --out FOLDER'"
        if read_asked(folder) is not None:
            hint = "Its records are there; run the same command again to go on"
        if running:
            hint = "It has only just begun"
        raise RunError(f"{folder}: a folder that 'batchscale run' writes has a status. Found none. {hint}.")
    found: tuple[Snapshot, str] = find_state(snapshot, running=running)
    return found


def _utc(seconds: float) -> str | None:
    """A time as ISO 8601 in UTC; None where a damaged status has a number that is no time."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, OSError, ValueError):
        return None


def _advice(snapshot: "Snapshot", state: str) -> str:
    if state == "silent":
        return f"; not heard from since {time.strftime('%H:%M', time.localtime(snapshot.written_at))}"
    return "; run the same command again to go on" if state == "stopped" else ""


def _headline(snapshot: "Snapshot", state: str) -> str:
    return f"{state}{_advice(snapshot, state)}\n{snapshot.workload}, goal {snapshot.goal}\n{describe_run(snapshot)}"


def _print(snapshot: "Snapshot", state: str) -> None:
    typer.echo(_headline(snapshot, state))
    for text in (snapshot.paused, snapshot.notice):
        if text:
            typer.echo(text)
    for line in describe_workers(snapshot):
        typer.echo(line)
    columns = (
        "batch size",
        "search",
        "complete",
        "wanted",
        "infeasible",
        "incomplete",
        "in training",
        "reached",
        "best steps",
        "done",
        "notes",
    )
    rows = [
        (
            s.batch_size,
            s.search,
            s.complete,
            s.wanted * s.search,
            max(s.infeasible, s.diverged),
            s.incomplete,
            s.running,
            s.reached,
            s.best_steps,
            percent_text(s.share),
            s.note or "",
        )
        for s in snapshot.studies
    ]
    print_table(columns, rows, right=range(10))


def _watch(folder: Path, *, as_json: bool) -> None:
    """A live table in a terminal, a line when something happened elsewhere, or JSON; until the run ends."""
    if sys.stdout.isatty() and not as_json:
        _watch_live(folder)
        return
    lines = PlainDisplay(sys.stdout)
    before = None
    while True:
        snapshot, state = _look(folder)
        if as_json:
            print_json_line(_to_json(snapshot, state))
        else:
            if state != before:
                typer.echo(f"{state}{_advice(snapshot, state)}: {snapshot.workload}, goal {snapshot.goal}")
            lines.show(snapshot)
        if state in ENDED:
            return
        before = state
        time.sleep(WATCH_EVERY_S)


def _watch_live(folder: Path) -> None:
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            snapshot, state = _look(folder)
            live.update(draw_snapshot(snapshot, _headline(snapshot, state)), refresh=True)
            if state in ENDED:
                return
            time.sleep(WATCH_EVERY_S)
