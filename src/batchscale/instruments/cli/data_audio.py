"""``batchscale data audio``: prepare a folder of recordings for training."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.output import print_json
from batchscale.errors import one_line
from batchscale.formatting import count_text

if TYPE_CHECKING:
    from batchscale.instruments.sound.preparation import PreparationProgress, ShowProgress

VERSION = 1
_QUIET_S = 10.0


def data_audio(
    recordings: Annotated[Path, typer.Argument(help="A folder of recordings: wav, flac, ogg, mp3, aiff.")],
    out: Annotated[Path, typer.Option(help="The folder for arrays; the option path of data set 'recordings'.")],
    silence: Annotated[float, typer.Option(metavar="DB", help="Quieter frames are silence.")] = -60.0,
    longest_rest: Annotated[
        float, typer.Option(metavar="SECONDS", help="Longer silence is cut to half of this on each side.")
    ] = 1.0,
    val_share: Annotated[float, typer.Option(help="The share of the time, at its end, for validation.")] = 0.1,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Prepare recordings: mono at 16 kHz, with pitch and loudness. Continues where it was stopped."""
    from batchscale.instruments.sound.preparation import prepare_recordings
    from batchscale.instruments.sound.segments import Cutting

    cutting = Cutting(silence, longest_rest, val_share)
    with _progress() as show:
        prepared = prepare_recordings(recordings, out, cutting, show)
    for name, why in prepared.skipped.items():
        typer.echo(f"Skipped {one_line(name)}: {why}", err=True)
    notes = {recording.name: recording.note for recording in prepared.recordings if recording.note}
    for name, note in notes.items():
        typer.echo(f"{one_line(name)}: {note}", err=True)
    seconds = {split: prepared.seconds(split) for split in ("train", "val")}
    if as_json:
        names = [recording.name for recording in prepared.recordings]
        files = {"recordings": names, "skipped": prepared.skipped, "notes": notes}
        print_json({"version": VERSION, "path": str(out), **files, "seconds": seconds, "tracker": prepared.tracker})
        return
    typer.echo(
        f"{out}: {count_text(len(prepared.recordings), 'recording')}, {seconds['train']:,.0f} s to train on and "
        f"{seconds['val']:,.0f} s to validate, {prepared.statistics.voiced_share:.0%} of it voiced."
    )


@contextmanager
def _progress() -> "Iterator[ShowProgress]":
    """Show a bar on a terminal; elsewhere a line every ten seconds."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def print_line(now: "PreparationProgress") -> None:
            nonlocal last
            if time.monotonic() - last > _QUIET_S:
                last = time.monotonic()
                name = one_line(now.recording, 60)
                typer.echo(f"{now.done_s:,.0f} of {now.total_s:,.0f} s  {now.number} of {now.count}: {name}", err=True)

        yield print_line
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bars:
        bar = bars.add_task("", total=None)
        yield lambda now: bars.update(
            bar, description=escape(one_line(now.recording, 40)), completed=now.done_s, total=now.total_s or None
        )
