"""``batchscale status``: the progress of a run, from another terminal. Reads only, and blocks nothing."""

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchscale.cli.output import print_json, print_json_line, print_table
from batchscale.cli.progress import PlainDisplay, describe_run, describe_workers, draw_status
from batchscale.formatting import percent_text

if TYPE_CHECKING:
    from batchscale.run.status import RunStatus

WATCH_EVERY_S = 1.0
VERSION = 1
ENDED = ("finished", "stopped")


def status(
    folder: Annotated[Path, typer.Argument(help="The folder of the records: --out of 'batchscale run'.")],
    watch: Annotated[bool, typer.Option("--watch", help="Update the display every second until the run ends.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object; with --watch one line of JSON every second.")
    ] = False,
) -> None:
    """Show the progress of a run from another terminal.

    Shows whether the run is running, not responding, stopped or finished, its trials, workers and time left.
    """
    if watch:
        _watch(folder, as_json=as_json)
        return
    run_status, state = _read_state(folder)
    if as_json:
        print_json(_to_json(run_status, state))
    else:
        _print(run_status, state)


def _to_json(run_status: "RunStatus", state: str) -> dict[str, Any]:
    return {"version": VERSION, "state": state, "heard_at": _utc(run_status.written_at), **run_status.to_json()}


def _read_state(folder: Path) -> "tuple[RunStatus, str]":
    from batchscale.errors import RunError
    from batchscale.run.status import find_state, is_running, read_status
    from batchscale.study.identity import read_plan

    run_status = read_status(folder)
    running = is_running(folder)
    if run_status is None:
        hint = "Start a run with 'batchscale run FILE --out FOLDER'"
        if read_plan(folder) is not None:
            hint = "It has the records of a run; run the same command again to continue"
        if running:
            hint = "The run has just started; retry in a moment"
        raise RunError(f"{folder}: must be the --out folder of 'batchscale run'. Found no status there. {hint}.")
    result: tuple[RunStatus, str] = find_state(run_status, running=running)
    return result


def _utc(seconds: float) -> str | None:
    """Return a time as ISO 8601 in UTC; None if a damaged status has a number that is no time."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, OSError, ValueError):
        return None


def _describe_state(run_status: "RunStatus", state: str) -> str:
    if state == "silent":
        return f"not responding since {time.strftime('%H:%M', time.localtime(run_status.written_at))}"
    return f"{state}; run the same command again to continue" if state == "stopped" else str(state)


def _headline(run_status: "RunStatus", state: str) -> str:
    lines = (
        _describe_state(run_status, state),
        f"{run_status.workload}, goal {run_status.goal}",
        describe_run(run_status),
    )
    return "\n".join(lines)


def _print(run_status: "RunStatus", state: str) -> None:
    typer.echo(_headline(run_status, state))
    for text in (run_status.paused, run_status.notice):
        if text:
            typer.echo(text)
    for line in describe_workers(run_status):
        typer.echo(line)
    from batchscale.analysis.units import EXAMPLES, SizeUnit

    stated = {study.tokens_per_example for study in run_status.studies}
    unit = SizeUnit(stated.pop()) if len(stated) == 1 else EXAMPLES
    columns = (
        *unit.size_columns,
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
            *unit.size_cells(s.batch_size),
            s.search,
            s.complete,
            s.all_wanted,
            max(s.infeasible, s.diverged),
            s.incomplete,
            s.running,
            s.reached,
            s.best_steps,
            percent_text(s.share),
            s.note or "",
        )
        for s in run_status.studies
    ]
    print_table(columns, rows, right=range(len(columns) - 1))
    for choice in run_status.choices:
        typer.echo(choice)


def _watch(folder: Path, *, as_json: bool) -> None:
    """Show a live table in a terminal, lines elsewhere, or JSON, until the run ends."""
    if sys.stdout.isatty() and not as_json:
        _watch_live(folder)
        return
    lines = PlainDisplay(sys.stdout)
    before = None
    while True:
        run_status, state = _read_state(folder)
        if as_json:
            print_json_line(_to_json(run_status, state))
        else:
            if state != before:
                typer.echo(f"{_describe_state(run_status, state)}: {run_status.workload}, goal {run_status.goal}")
            lines.show(run_status)
        if state in ENDED:
            return
        before = state
        time.sleep(WATCH_EVERY_S)


def _watch_live(folder: Path) -> None:
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            run_status, state = _read_state(folder)
            live.update(draw_status(run_status, _headline(run_status, state)), refresh=True)
            if state in ENDED:
                return
            time.sleep(WATCH_EVERY_S)
