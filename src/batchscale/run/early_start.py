"""Load the training engine of a run while its experiment is still being read and checked.

Imports nothing heavy, because the engine takes longer to load than anything else.
"""

import contextlib
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from batchscale.workers.fork_server import ForkServer, can_fork

MAX_BYTES = 2**20
"""Nothing is started early for a larger file."""

_loading: list[ForkServer] = []  # the one server of this process, if there is one


@contextlib.contextmanager
def load_engine_early() -> Iterator[None]:
    """Let a fork server load the engine for the run of this command; nothing is left of it at the end."""
    if can_fork():
        with contextlib.suppress(OSError):  # then the runner starts its workers one by one
            _loading.append(ForkServer())
    try:
        yield
    finally:
        end_early_start()


def end_early_start() -> None:
    """End the fork server that loads the engine, if there is one."""
    while _loading:
        _loading.pop().close()


def find_fork_server(file: Path, out: Path) -> ForkServer | None:
    """Return the fork server that is loading the engine; None, at its end, if this run of the file will not use it.

    A user's script needs other workers, and a finished run none.
    """
    if _loading and (not _uses_engine(_read_table(file)) or _is_finished(out)):
        end_early_start()
    return _loading[0] if _loading else None


def _read_table(file: Path) -> dict[str, Any]:
    """Return the file's table, empty if it cannot be read: that is reported by what reads it properly.

    A pipe is left alone, because it can be read only once.
    """
    try:
        is_readable = file.is_file() and file.stat().st_size <= MAX_BYTES
        return tomllib.loads(file.read_text(encoding="utf-8")) if is_readable else {}
    except (OSError, ValueError, RecursionError):
        return {}


def _uses_engine(table: dict[str, Any]) -> bool:
    return bool(table) and "trainer" not in table


def _is_finished(out: Path) -> bool:
    if not out.is_dir():
        return False
    from batchscale.records.tree.layout import RunPaths  # here, because most runs begin in a new folder

    try:
        return bool(json.loads(RunPaths(out).status.read_bytes())["finished"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
