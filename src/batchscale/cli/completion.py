"""Shell completion of names: workloads of records, data sets, figures. Everything here answers within a moment.

Files and folders are completed by the shell itself, options and commands by typer.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

MAX_FOLDERS = 2000
"""Folders that are looked at for names of workloads: a completion must not wait for a disk."""

MAX_MANIFEST_BYTES = 2**22

COMPLETING = "_BATCHSCALE_COMPLETE"
"""The variable with which a shell asks for completions."""


def completed_command() -> str | None:
    """Return the command of the line that a shell completes, None if it is not complete itself."""
    words = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()
    return words[1] if len(words) > 2 else None


def complete_workloads(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of workloads in the records that the line names so far, or below the current folder."""
    words = [*ctx.params.values(), *ctx.args]  # an argument before an unfinished option is in the second
    folders = [Path(word) for word in words if isinstance(word, Path | str) and Path(word).is_dir()]
    names: list[str] = []
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):  # no traceback into a prompt
        names += _workload_names(folders[0] if folders else Path())
    return sorted(name for name in set(names) if name.startswith(incomplete))


def _workload_names(root: Path) -> Iterator[str]:
    """Yield ``dataset/model/optimizer`` of a table, from its manifest, or of a tree, from the names of its folders."""
    manifest = root / "manifest.json"
    if manifest.is_file() and manifest.stat().st_size < MAX_MANIFEST_BYTES:
        entries = json.loads(manifest.read_bytes()).get("workloads", [])
        yield from (f"{entry['dataset']}/{entry['model']}/{entry['optimizer']}" for entry in entries)
        return
    pending, looked_at = [root], 0
    while pending and looked_at < MAX_FOLDERS:
        folder = pending.pop()
        looked_at += 1
        try:
            folders = [entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".")]
        except OSError:
            continue
        sizes = [name for name in folders if name.isdecimal()]
        if any((folder / size / "study.json").is_file() for size in sizes[:3]):
            yield folder.relative_to(root).as_posix()
        else:
            pending += [folder / name for name in folders]


def complete_with(list_names: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    """Return a completion from a function that lists all names; errors give no names."""

    def complete(incomplete: str) -> list[str]:
        try:
            return [name for name in list_names() if name.startswith(incomplete)]
        except Exception:  # noqa: BLE001  (a completion never prints a traceback into the user's line)
            return []

    return complete


def dataset_names() -> list[str]:
    """Return the names of data sets that can be downloaded or prepared."""
    from batchscale.workloads.datasets.files.locations import list_datasets

    return [dataset.name for dataset in list_datasets(None)]


def figure_names() -> list[str]:
    """Return the names of figures."""
    from batchscale.figures.kinds import kind_names

    return [*kind_names(), *(f"paper-{number}" for number in range(1, 25))]
