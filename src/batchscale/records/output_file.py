"""Write the file that a user named for a command's output: every ``--out``, ``--csv`` and ``--chart`` of a file.

A regular file is replaced as a whole, durably, and has the permissions of the old one. A link stays, and the file it
leads to is replaced. A device, a named pipe and an open descriptor (``/dev/stdout``) are written to and stay as they
are. Folders, sockets and disks are refused.
"""

import contextlib
import errno
import os
import secrets
import stat
import sys
from pathlib import Path

from batchscale.errors import SpecError, one_line
from batchscale.records.durable import REAL, make_folders, write_file

_MAX_LINKS = 40


def write_output(path: Path, data: bytes | str) -> None:
    """Write all of a command's output to ``path``; missing folders are made.

    Raises:
        SpecError: it is a folder, a socket or a disk, or the file system refuses. A regular file is then untouched.
    """
    content = data.encode() if isinstance(data, str) else data
    try:
        refusal = _write(_follow_links(path), content)
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        refusal = f": {one_line(getattr(error, 'strerror', None) or error)}"
    if refusal is not None:
        raise SpecError(
            f"The output must be a file that can be written: '{one_line(path, 300)}'{refusal}. Pass another path."
        )


def _write(target: Path, content: bytes) -> str | None:
    """Write the content to a path that is no link; return the reason if nothing may be written there."""
    descriptor = _own_descriptor(target)
    if descriptor is not None:
        sys.stdout.flush()
        REAL.write(descriptor, content)
        return None
    old = _state(target)
    if old is None or stat.S_ISREG(old.st_mode):
        _replace(target, content, old)
    elif stat.S_ISCHR(old.st_mode) or stat.S_ISFIFO(old.st_mode):
        _write_through(target, content)
    else:
        kinds = [(stat.S_ISDIR, "a folder"), (stat.S_ISSOCK, "a socket"), (stat.S_ISBLK, "a disk")]
        return " is " + next((name for test, name in kinds if test(old.st_mode)), "no file")
    return None


def is_regular_or_missing(path: Path) -> bool:
    """True if output to ``path`` makes or replaces a regular file, whose old content a command may read first."""
    with contextlib.suppress(OSError, ValueError):
        target = _follow_links(path)
        state = _state(target)
        return _own_descriptor(target) is None and (state is None or stat.S_ISREG(state.st_mode))
    return True  # the command's own reading says what is wrong


def _follow_links(path: Path) -> Path:
    """Return the place that a path leads to: links are followed one by one, up to a descriptor of this process."""
    for _ in range(_MAX_LINKS):
        if not path.is_symlink() or _own_descriptor(path) is not None:
            return path
        path = path.parent.resolve() / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _own_descriptor(path: Path) -> int | None:
    """Return the open descriptor of this process that a path such as ``/dev/fd/1`` names.

    It is written to directly: to open its file again would begin at the front, over what stands there.
    """
    if not path.name.isdecimal() or not sys.platform.startswith("linux"):
        return None
    parent = path.parent.resolve()
    return int(path.name) if parent == Path(f"/proc/{os.getpid()}/fd") else None


def _state(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _write_through(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)  # a pipe waits for its reader, as in a shell
    try:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EBUSY, "it became a regular file meanwhile")
        REAL.write(handle, content)
    finally:
        os.close(handle)


def _replace(path: Path, content: bytes, old: os.stat_result | None) -> None:
    make_folders(REAL, path.parent)
    beside = path.with_name(f".{secrets.token_hex(8)}.writing")  # short: the name of the file may be as long as allowed
    try:
        write_file(REAL, beside, content)
        if old is not None:
            with contextlib.suppress(OSError):  # only root may give a file to its old owner
                os.chown(beside, old.st_uid, old.st_gid)
            beside.chmod(stat.S_IMODE(old.st_mode))
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    REAL.sync_directory(path.parent)
