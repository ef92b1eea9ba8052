"""Files of a data set on a machine that has none: taken from a place that it sees, once for all its workers."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from batchscale.errors import BatchscaleError, DataError, one_line
from batchscale.records.remote_store import RemoteStore
from batchscale.workloads.datasets.files.locations import default_data_dir, find_files
from batchscale.workloads.datasets.files.take import take_files
from batchscale.workloads.datasets.presence import files_of


def take_data(name: str, source: str, data_dir: Path | None) -> None:
    """Put the files of a data set where this machine keeps data, unless another worker has just done so.

    Args:
        name: the data set.
        source: a folder or an archive that this machine sees, as ``batchscale data get --from`` takes it, or the
            remote path of an archive.
        data_dir: where else the files may be.

    Raises:
        DataError: they are not there, not what the publisher gave out, or cannot be written.
        StorageError: the remote path cannot be read.
    """
    files, place = files_of(name), default_data_dir()
    try:
        place.mkdir(parents=True, exist_ok=True)
        with _alone(place / f".{files.folder}.taking"):
            if find_files(files, data_dir) is None:
                with _here(source, place) as path:
                    take_files(files.origin, path, files.are_in, place)
    except BatchscaleError:
        raise
    except OSError as error:
        raise DataError(f"Data is kept in {place}, which must take it. Found: {one_line(error, 300)}.") from None


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Held by one process of this machine at a time; others wait."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _here(source: str, place: Path) -> Iterator[Path]:
    """The source as a path of this machine; a remote archive is there for as long as it is needed."""
    folder, _, file = source.rpartition("/")
    if "://" not in source:
        yield Path(source).expanduser()
    elif not file or folder.endswith("/"):
        raise DataError(f"A remote path to take data from names an archive. Found {one_line(source, 300)}.")
    else:
        with tempfile.TemporaryDirectory(prefix=".taking-", dir=place) as inner:
            path = Path(inner) / Path(file).name
            RemoteStore(folder).download(file, path)
            yield path
