"""Encoded images by index: in a folder, or in a store on disk. Imports no jax."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, one_line


class EncodedImages(Protocol):
    """Images that can be read in any order, from several threads at once."""

    def __len__(self) -> int:
        """How many images there are."""

    def read(self, index: int) -> tuple[bytes, str]:
        """The encoded image, and a name for it in messages."""


@dataclass(frozen=True)
class FolderImages:
    """Images as files below a folder."""

    root: Path
    files: Sequence[str]

    def __len__(self) -> int:
        return len(self.files)

    def read(self, index: int) -> tuple[bytes, str]:
        """The bytes of the file."""
        path = self.root / self.files[index]
        try:
            return path.read_bytes(), str(path)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {one_line(error.strerror)}. It was there before.") from error


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

    def keep(self, chosen: NDArray[np.int64]) -> "Selection":
        """Only the images at these positions."""
        return Selection(self.images, self.indices[chosen], self.labels[chosen])


def label_images(
    images: EncodedImages, labels: Sequence[Any], where: str, classes: tuple[str, ...] | None = None
) -> ClassedImages:
    """Images whose labels are numbers from 0, or names of classes, which are numbered in their own order.

    Raises:
        DataError: A label is neither, or is none of the classes that are already known.
    """
    if all(type(label) is int for label in labels):
        names = classes or tuple(str(number) for number in range(max(labels, default=-1) + 1))
        numbers = list(labels)
    else:
        names = classes or tuple(sorted({str(label) for label in labels}))
        known = {name: number for number, name in enumerate(names)}
        numbers = [known.get(label, -1) for label in labels]
    for label, number in zip(labels, numbers, strict=True):
        if not 0 <= number < len(names):
            raise DataError(f"{where}: a label is one of {len(names)} classes. Found {one_line(repr(label))}.")
    return ClassedImages(images, np.array(numbers, np.int32), names)
