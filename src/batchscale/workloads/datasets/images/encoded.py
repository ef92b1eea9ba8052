"""Encoded images by index: in a folder, in a store on disk, or in a Hugging Face data set. Imports no jax."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, one_line
from batchscale.workloads.cache import cached, filling


class EncodedImages(Protocol):
    """Images that can be read in any order, from several threads at once."""

    def __len__(self) -> int:
        """Return the number of images."""

    def read(self, index: int) -> tuple[bytes, str]:
        """Return the encoded image, and a name for it in messages."""


@dataclass(frozen=True)
class FolderImages:
    """Images as files below a folder."""

    root: Path
    files: Sequence[str]

    def __len__(self) -> int:
        return len(self.files)

    def read(self, index: int) -> tuple[bytes, str]:
        """Return the bytes of the file."""
        path = self.root / self.files[index]
        try:
            return path.read_bytes(), str(path)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {one_line(error.strerror)}. It existed before.") from error


@dataclass(frozen=True)
class ClassedImages:
    """Images, each with the index of its one class."""

    images: EncodedImages
    labels: NDArray[np.int32]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Selection:
    """Some images of a source in a fixed order, with their labels; ``labels[i]`` belongs to ``indices[i]``."""

    images: EncodedImages
    indices: NDArray[np.int64]
    labels: NDArray[np.int32]

    def keep(self, positions: NDArray[np.int64]) -> "Selection":
        """Return only the images at these positions."""
        return Selection(self.images, self.indices[positions], self.labels[positions])


def label_images(
    images: EncodedImages, labels: Sequence[Any], where: str, classes: tuple[str, ...] | None = None
) -> ClassedImages:
    """Label images with numbers from 0, or with names of classes, which are numbered in alphabetical order.

    Raises:
        DataError: A label is neither, or is none of ``classes``.
    """
    if all(type(label) is int for label in labels):
        names = classes or tuple(str(number) for number in range(max(labels, default=-1) + 1))
        numbers = list(labels)
    else:
        names = classes or tuple(sorted({str(label) for label in labels}))
        numbers_by_name = {name: number for number, name in enumerate(names)}
        numbers = [numbers_by_name.get(label, -1) for label in labels]
    for label, number in zip(labels, numbers, strict=True):
        if not 0 <= number < len(names):
            raise DataError(f"{where}: a label must be one of {len(names)} classes. Found {one_line(repr(label))}.")
    return ClassedImages(images, np.array(numbers, np.int32), names)


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
        """Return the bytes between two offsets."""
        start, end = self.offsets[index], self.offsets[index + 1]
        return self.content[start:end].tobytes(), f"{self.name}, row {index}"


def find_parquet(root: Path, split: str) -> list[Path]:
    """Return the Parquet files of a split, by the usual names: ``train-00000-of-00010.parquet`` and the like."""
    names = {"train": ("train",), "val": ("validation", "val"), "test": ("test",)}[split]
    for folder in (root, root / "data"):
        for name in names:
            files = sorted({*folder.glob(f"{name}-*.parquet"), *folder.glob(f"{name}.parquet")})
            if files:
                return files
    return []


def open_store(files: Sequence[Path], image_column: str, label_column: str) -> tuple[StoredImages, list[Any]]:
    """Return the images of Parquet files and the values of their label column.

    Parquet can read single rows only with their whole row groups. So the encoded images are copied once, at the first
    call, into one flat file in the cache with an index of offsets; the store appears whole by one rename.
    """
    digest = hashlib.sha256("\n".join([_VERSION, image_column, *map(_fingerprint, files)]).encode()).hexdigest()[:32]
    folder = cached("images", digest)
    if not folder.is_dir():
        _write_store(files, image_column, folder)
    offsets = np.load(folder / "offsets.npy", allow_pickle=False)
    content = np.memmap(folder / "content.bin", np.uint8, "r") if offsets[-1] else np.zeros(0, np.uint8)
    labels = [value for file in files for value in _read_column(file, label_column)]
    return StoredImages(str(files[0].parent), content, offsets), labels


def _fingerprint(file: Path) -> str:
    """Identify a file by path, size and time of change: hashing hundreds of gigabytes would take an hour."""
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


@dataclass(frozen=True)
class HubImages:
    """Rows of one split of a Hugging Face data set, whose images stay encoded until they are read."""

    name: str
    rows: Any
    column: str

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, index: int) -> tuple[bytes, str]:
        """Return the bytes of a row's image, or of the file that it names."""
        where = f"{self.name}, row {index}"
        value = self.rows[int(index)][self.column]
        if value.get("bytes") is not None:
            return value["bytes"], where
        try:
            return Path(value["path"]).read_bytes(), where
        except (OSError, TypeError) as error:
            raise DataError(f"{where} has no image: {one_line(error)}.") from error


@dataclass(frozen=True)
class HubSplit:
    """One split: its images, the values of its label column, and the names of the classes if the set has them."""

    images: HubImages
    labels: list[Any]
    classes: tuple[str, ...] | None


def read_hub(name: str, config: str | None, image_column: str, label_column: str) -> dict[str, HubSplit]:
    """Return the splits ``train``, ``val`` and ``test`` that a Hugging Face data set has.

    Raises:
        DataError: The library is not installed, or the set or a column does not exist.
    """
    try:
        import datasets
    except ImportError:
        raise DataError("The option `hf` needs the datasets library. Run `pip install 'batchscale[hf]'`.") from None
    try:
        is_saved = any((Path(name) / file).is_file() for file in ("dataset_dict.json", "state.json"))
        loaded = datasets.load_from_disk(name) if is_saved else datasets.load_dataset(name, config)
    except (OSError, ValueError, RuntimeError) as error:  # the library's own errors derive from these
        raise DataError(f"Hugging Face data set {one_line(repr(name))} cannot be loaded: {one_line(error)}.") from error
    table = loaded if isinstance(loaded, dict) else {"train": loaded}
    names = {"train": "train", "validation": "val", "valid": "val", "val": "val", "test": "test"}
    return {
        names[split]: _read_split(name, rows, image_column, label_column, datasets)
        for split, rows in table.items()
        if split in names
    }


def _read_split(name: str, rows: Any, image_column: str, label_column: str, library: Any) -> HubSplit:
    for column in (image_column, label_column):
        if column not in rows.features:
            raise DataError(f"{name} must have a column {column!r}. Found: {', '.join(rows.features)}.")
    feature = rows.features[label_column]
    classes = getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)
    encoded = rows.cast_column(image_column, library.Image(decode=False))
    return HubSplit(
        HubImages(name, encoded, image_column), list(rows[label_column]), tuple(classes) if classes else None
    )
