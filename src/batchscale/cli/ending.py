"""How a command ends: the one paragraph of an error, its exit code, and output that nobody takes any more."""

import contextlib
import errno
import os
import sys
import threading
import time
from typing import NoReturn

import typer

from batchscale.errors import one_line

USER_MISTAKE = 2
THREADS_END_S = 2.0
"""How long a finished command waits for threads that are not its own."""


def refuse(message: str) -> NoReturn:
    """Say what is wrong on standard error and end with the exit code of a user's mistake."""
    with contextlib.suppress(OSError):  # nobody may be there to read it
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        typer.echo(f"Error: {message}", err=True)
    abandon_output()
    leave(USER_MISTAKE)


def leave(code: str | int | None) -> NoReturn:
    """End the process; threads of a user's own file that would go on for ever do not keep it."""
    main = threading.main_thread()
    others = [one for one in threading.enumerate() if not one.daemon and one is not main]
    if others and isinstance(code, int | None) and threading.current_thread() is main:
        until = time.monotonic() + THREADS_END_S
        for thread in others:
            thread.join(max(0.0, until - time.monotonic()))
        if any(one.is_alive() for one in others):
            abandon_output()
            os._exit(code or 0)
    sys.exit(code)


def describe_refusal(error: OSError, what: str | None = None) -> str:
    """What the system refused, in words; ``what`` names what it refused where the error does not."""
    where = one_line(error.filename if error.filename is not None else what or "a file or the standard output", 300)
    advice = {
        errno.ENOSPC: "Free some space, or give another place",
        errno.EDQUOT: "Ask for a larger quota, or give another place",
        errno.ENAMETOOLONG: "Give a shorter path",
        errno.ENOENT: "Give one that exists",
        errno.EACCES: "Give yourself the right to use it, or give another",
        errno.EROFS: "Give a place that can be written",
        errno.EMFILE: "Raise the limit of open files (ulimit -n)",
    }.get(error.errno or 0, "See to it and try again")
    return f"{where}: the system must allow what the command needs. Found: {error.strerror or error}. {advice}."


def abandon_output() -> None:
    """Write nothing more: what is buffered for a reader that went away or a full disk must not fail at the end."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                os.dup2(null, stream.fileno())
        os.close(null)
