"""The end of a command: errors become one paragraph and an exit code, here and nowhere else.

Exit codes: 0 for success, 2 for a mistake of the user, 75 (``errors.REQUEUE``) for "run the command again", 130 for
Ctrl-C. A closed pipe (head, less) is no error.
"""

import contextlib
import errno
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

import typer

from batchscale.errors import ENGINE_LIBRARIES, NO_ENGINE, BatchscaleError, one_line

USER_MISTAKE = 2
INTERRUPTED = 130
THREADS_END_S = 2.0
"""The longest that a finished command waits for threads that are not its own."""


def run_and_exit(command: Callable[[], object]) -> NoReturn:
    """Run a command, which raises SystemExit when it is finished, and end the process."""
    try:
        command()
        exit_process(0)
    except SystemExit as end:
        gc.freeze()  # the process ends: a last collection gains nothing
        exit_process(_flush_output(end))
    except (BatchscaleError, OSError) as error:
        exit_with_error(describe_error(error))
    except ModuleNotFoundError as error:
        if error.name not in ENGINE_LIBRARIES:
            raise
        exit_with_error(NO_ENGINE)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def exit_with_error(message: str) -> NoReturn:
    """Print the message to standard error and end with the exit code of a user's mistake."""
    with contextlib.suppress(OSError):  # the reader may be gone
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        typer.echo(f"Error: {message}", err=True)
    _discard_output()
    exit_process(USER_MISTAKE)


def exit_process(code: str | int | None) -> NoReturn:
    """End the process, also if threads of a user's own file never end."""
    main = threading.main_thread()
    others = [thread for thread in threading.enumerate() if not thread.daemon and thread is not main]
    if others and isinstance(code, int | None) and threading.current_thread() is main:
        deadline = time.monotonic() + THREADS_END_S
        for thread in others:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in others):
            _discard_output()
            os._exit(code or 0)
    sys.exit(code)


def describe_error(error: BatchscaleError | OSError) -> str:
    """Return the paragraph that a user's mistake ends with."""
    return str(error) if isinstance(error, BatchscaleError) else describe_os_error(error)


def describe_os_error(error: OSError, where: str | None = None) -> str:
    """Describe an error of the operating system; ``where`` names the file if the error does not."""
    place = one_line(error.filename if error.filename is not None else where or "a file or the standard output", 300)
    advice = {
        errno.ENOSPC: "Free some space, or pass another path",
        errno.EDQUOT: "Request a larger quota, or pass another path",
        errno.ENAMETOOLONG: "Pass a shorter path",
        errno.ENOENT: "Pass one that exists",
        errno.EACCES: "Change its permissions, or pass another path",
        errno.EROFS: "Pass a path that can be written",
        errno.EMFILE: "Raise the limit of open files (ulimit -n)",
    }.get(error.errno or 0, "Fix this and retry")
    return f"{place}: the operating system refused access. Found: {error.strerror or error}. {advice}."


def _flush_output(end: SystemExit) -> str | int | None:
    """Write out everything that was printed and return the exit code."""
    pipe_closed = isinstance(end.__context__, BrokenPipeError)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        pipe_closed = True
    except OSError as error:
        _discard_output()
        exit_with_error(describe_os_error(error, "standard output"))
    if pipe_closed:
        _discard_output()
        return 0
    return end.code


def _discard_output() -> None:
    """Redirect output that cannot be written (a closed pipe, a full disk), so that it does not fail at the end."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                os.dup2(null, stream.fileno())
        os.close(null)
