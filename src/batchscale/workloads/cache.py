"""The one cache folder: compiled programs, encoded text, copied images, vocabularies, fetched data. Imports no jax."""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from batchscale.records.durable import sync_path


def cache_folder() -> Path:
    """Return the folder named by ``BATCHSCALE_CACHE``, else the user's."""
    named = os.environ.get("BATCHSCALE_CACHE")
    return Path(named).expanduser() if named else user_cache_folder()


def user_cache_folder() -> Path:
    """Return ``batchscale`` below ``XDG_CACHE_HOME``, which must be absolute to count, or below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "batchscale"


def cached(*parts: str, grows: bool = False) -> Path:
    """Return a path in the cache folder, or in a temporary one if that cannot be written.

    With ``grows`` the path is written to again and again, so that it must be writable even if it exists.
    """
    path = cache_folder().joinpath(*parts)
    if cache_problem() is None or (path.exists() and not grows):
        return path
    return _temporary_folder().joinpath(*parts)


def cache_problem() -> str | None:
    """Return the reason why the cache folder is not used, as a sentence; None if it can be written."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return None
        reason = "it cannot be written"
    except OSError as error:
        reason = error.strerror or str(error)
    return (
        f"{folder}: the cache folder must be writable ({reason}). Programs are stored in {_temporary_folder()} "
        "instead, which may not last; BATCHSCALE_CACHE names another folder."
    )


def _temporary_folder() -> Path:
    """Return a private folder among the temporary files: the same for all processes of a run."""
    folder = Path(tempfile.gettempdir()) / f"batchscale-cache-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(13, "a folder for temporary files is this user's alone", str(folder))
    return folder


@contextlib.contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """Yield a folder for files that appears at its place when all are written, durably; a failure leaves nothing.

    Two processes may make the same folder: that of the first to finish stays.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        yield stage
        for path in (*stage.iterdir(), stage):
            sync_path(path)
        try:
            stage.replace(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster, with the same content
                raise
        sync_path(folder.parent)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
