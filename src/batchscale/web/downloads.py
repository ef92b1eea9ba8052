"""Downloads of records: a zip that is made while it is sent, and tables as CSV or Parquet.

A zip has the regular files inside the folder; links and working files of the run are left out.
"""

import io
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from batchscale.formatting import size
from batchscale.records.frames import Records
from batchscale.records.metadata.columns import METADATA
from batchscale.records.tree.layout import WORKING_FOLDER
from batchscale.web.refusals import RefusedError

CHUNK = 1 << 18
TABLES = ("studies", "trials", "measurements")


class _Buffer(io.RawIOBase):
    """A file that holds written bytes until they are taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = bytes(data)  # type: ignore[call-overload]
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def take(self) -> bytes:
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def zip_files(root: Path, limit: int) -> Iterator[bytes]:
    """Return the regular files below ``root`` as a zip, piece by piece.

    Raises:
        RefusedError: they have more than ``limit`` bytes; before anything is sent.
    """
    files = list(_regular_files(root))
    total = sum(path.lstat().st_size for path in files)
    if total > limit:
        raise RefusedError(413, f"A zip may have at most {size(limit)}. Found {size(total)}; copy the folder.")
    return _zip(root, files)


def _zip(root: Path, files: list[Path]) -> Iterator[bytes]:
    buffer = _Buffer()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive:
        for path in files:
            try:
                handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError:
                continue  # gone since, or not a file any more
            with os.fdopen(handle, "rb") as source:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    continue
                name = str(Path(root.name or "records") / path.relative_to(root))
                with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
                    while piece := source.read(CHUNK):
                        member.write(piece)
                        if ready := buffer.take():
                            yield ready
    yield buffer.take()


def _regular_files(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root, followlinks=False):
        names[:] = sorted(name for name in names if name != WORKING_FOLDER)
        for name in sorted(files):
            path = Path(folder, name)
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def table_bytes(records: Records, table: str, suffix: str) -> bytes:
    """Return one of the tables of records as a file."""
    frame = {"studies": lambda: records.studies, "trials": lambda: records.trials}.get(
        table, lambda: records.measurements.collect()
    )()
    if suffix == "parquet":
        target = io.BytesIO()
        frame.write_parquet(target)
        return target.getvalue()
    if METADATA in frame.columns:
        frame = frame.with_columns(pl.col(METADATA).struct.json_encode())
    return guarded_csv(frame)


def guarded_csv(frame: pl.DataFrame) -> bytes:
    """Return a frame as CSV; a cell that a spreadsheet would take for a formula gets an apostrophe before it."""
    texts = [pl.col(name) for name, kind in frame.schema.items() if kind == pl.String]
    guarded = [
        pl.when(text.str.contains(r"^[=+\-@\t\r]")).then(pl.concat_str(pl.lit("'"), text)).otherwise(text).name.keep()
        for text in texts
    ]
    target = io.BytesIO()
    frame.with_columns(guarded).write_csv(target)
    return target.getvalue()
