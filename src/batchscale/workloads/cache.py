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
    """The folder named by ``BATCHSCALE_CACHE``, else the user's."""
    named = os.environ.get("BATCHSCALE_CACHE")
    return Path(named).expanduser() if named else user_cache_folder()


def user_cache_folder() -> Path:
    """``batchscale`` below ``XDG_CACHE_HOME``, which must be absolute to count, or below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "batchscale"


def cached(*parts: str, grows: bool = False) -> Path:
    """Where something is kept, or may be: in the cache folder, or in a passing one where that cannot be written.

    What ``grows`` is written to again and again, so that it must be writable even where it is there.
    """
    kept = cache_folder().joinpath(*parts)
    if cache_problem() is None or (kept.exists() and not grows):
        return kept
    return _passing_folder().joinpath(*parts)


def cache_problem() -> str | None:
    """Why the cache folder is not used, in a sentence for people; None if it can be written."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return None
        reason = "it cannot be written"
    except OSError as error:
        reason = error.strerror or str(error)
    return (
        f"{folder}: the cache folder must be writable ({reason}). Compiled programs are kept in {_passing_folder()} "
        "instead, which may not last; BATCHSCALE_CACHE names another folder."
    )


def _passing_folder() -> Path:
    """A folder of this user's alone among the temporary files: the same for all processes of a run."""
    folder = Path(tempfile.gettempdir()) / f"batchscale-cache-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(13, "a folder for temporary files is this user's alone", str(folder))
    return folder


@contextlib.contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """A folder for files that is at its place when all is written, whole and durable; a failure leaves nothing.

    Two processes that make the same one do each other no harm: the first to end stays.
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
