"""Images of Parquet files as one memory-mapped store in the cache, for reading in any order. Imports no jax.

Parquet gives single rows only at the price of whole row groups. So the encoded images are copied once, file after
file, into one flat file with an index of offsets; the store appears whole by one rename.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, one_line
from batchscale.workloads.cache import cached, filling

_VERSION = "1"


@dataclass(frozen=True)
class StoredImages:
    """Images laid end to end in one file."""

    name: str
    content: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def read(self, index: int) -> tuple[bytes, str]:
        """The bytes between two offsets."""
        start, end = self.offsets[index], self.offsets[index + 1]
        return self.content[start:end].tobytes(), f"{self.name}, row {index}"


def find_parquet(root: Path, split: str) -> list[Path]:
    """The Parquet files of a split, by the usual names: ``train-00000-of-00010.parquet`` and the like."""
    names = {"train": ("train",), "val": ("validation", "val"), "test": ("test",)}[split]
    for folder in (root, root / "data"):
        for name in names:
            found = sorted({*folder.glob(f"{name}-*.parquet"), *folder.glob(f"{name}.parquet")})
            if found:
                return found
    return []


def open_store(files: Sequence[Path], image_column: str, label_column: str) -> tuple[StoredImages, list[Any]]:
    """The images of Parquet files and the values of their label column, copied into the cache at the first call."""
    digest = hashlib.sha256("\n".join([_VERSION, image_column, *map(_fingerprint, files)]).encode()).hexdigest()[:32]
    folder = cached("images", digest)
    if not folder.is_dir():
        _write_store(files, image_column, folder)
    offsets = np.load(folder / "offsets.npy", allow_pickle=False)
    content = np.memmap(folder / "content.bin", np.uint8, "r") if offsets[-1] else np.zeros(0, np.uint8)
    labels = [value for file in files for value in _read_column(file, label_column)]
    return StoredImages(str(files[0].parent), content, offsets), labels


def _fingerprint(file: Path) -> str:
    """A file by path, size and time of change: hashing hundreds of gigabytes at every start would take an hour."""
    info = file.stat()
    return f"{file.resolve()}:{info.st_size}:{info.st_mtime_ns}"


def _write_store(files: Sequence[Path], column: str, folder: Path) -> None:
    sizes: list[int] = [0]
    with filling(folder) as stage:
        with (stage / "content.bin").open("wb") as out:
            for file in files:
                for value in _read_column(file, column):
                    content = value.get("bytes") if isinstance(value, dict) else value
                    if not isinstance(content, bytes):
                        raise DataError(f"{file}: column {column!r} must hold encoded images, found {_kind(content)}.")
                    out.write(content)
                    sizes.append(len(content))
        np.save(stage / "offsets.npy", np.cumsum(sizes, dtype=np.int64))


def _kind(value: object) -> str:
    return "nothing" if value is None else type(value).__name__


def _read_column(file: Path, column: str) -> list[Any]:
    import polars as pl

    try:
        names = pl.read_parquet_schema(file)
        if column not in names:
            raise DataError(f"{file} must have a column {column!r}. Found: {', '.join(names)}.")
        return pl.read_parquet(file, columns=[column])[column].to_list()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{file} cannot be read as Parquet: {one_line(error)}.") from error
