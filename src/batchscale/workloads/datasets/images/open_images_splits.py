"""The trainable classes of Open Images, and the images of each split that show one (paper, A.1). Imports no jax.

A set without split files is split at random, fixed: a tenth each of its labelled images for validation and test.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError
from batchscale.workloads.datasets.images.encoded import EncodedImages
from batchscale.workloads.datasets.images.fixed_order import fixed_order
from batchscale.workloads.datasets.images.open_images_files import Positives, read_positives
from batchscale.workloads.datasets.images.options import OpenImagesOptions

NUM_TRAIN, NUM_CLASSES, MIN_POSITIVES = 4_526_492, 7_186, 100


@dataclass(frozen=True)
class MultilabelSelection:
    """Images with the classes they show: those of position i are ``classes[offsets[i]:offsets[i + 1]]``."""

    images: EncodedImages
    indices: NDArray[np.int64]
    offsets: NDArray[np.int64]
    classes: NDArray[np.int32]

    def multi_hot(self, positions: NDArray[np.int64], num_classes: int) -> NDArray[np.uint8]:
        """One row per position: 1 for the classes shown, 0 for all others, which are assumed negative."""
        labels = np.zeros((len(positions), num_classes), np.uint8)
        for row, position in enumerate(positions):
            labels[row, self.classes[self.offsets[position] : self.offsets[position + 1]]] = 1
        return labels


def read_open_images(
    folder: Path | None, options: OpenImagesOptions
) -> tuple[dict[str, MultilabelSelection], list[str]]:
    """The three splits and the names of the trainable classes, in their order.

    Raises:
        DataError: No class is trainable, a split is empty, or the files are not the official ones that were asked for.
    """
    found = read_positives(folder, options)
    found = found if {"val", "test"} <= set(found) else _split(found["train"])
    classes = _trainable_classes(found["train"], options.min_positives)
    if not classes:
        raise DataError(
            f"No class has min_positives = {options.min_positives} positive training images: set the option lower."
        )
    splits = {split: _select(part, classes) for split, part in found.items()}
    for split, part in splits.items():
        if not len(part.indices):
            raise DataError(f"No image of the split {split!r} shows one of the {len(classes)} trainable classes.")
    count = len(splits["train"].indices)
    official = not options.names_files and options.min_positives == MIN_POSITIVES
    if official and (count, len(classes)) != (NUM_TRAIN, NUM_CLASSES):
        raise DataError(
            f"Open Images v4 has {NUM_TRAIN:,} training images of {NUM_CLASSES:,} trainable classes. {folder} holds "
            f'{count:,} of {len(classes):,}. To train on it as it is, set the option path = "{folder}".'
        )
    return splits, classes


def _trainable_classes(train: Positives, min_positives: int) -> list[str]:
    counts = np.bincount(train.labels, minlength=len(train.names))
    return [str(name) for name in train.names[counts >= min_positives]]


def _select(part: Positives, classes: list[str]) -> MultilabelSelection:
    """Only images with a trainable label, in the order of the source."""
    number = {name: position for position, name in enumerate(classes)}
    renumbered = np.array([number.get(str(name), -1) for name in part.names], np.int32)
    labels = renumbered[part.labels]
    rows, labels = part.rows[labels >= 0], labels[labels >= 0]
    order = np.lexsort((labels, rows))
    rows, labels = rows[order], labels[order]
    indices, starts = np.unique(rows, return_index=True)
    return MultilabelSelection(part.images, indices, np.append(starts, len(rows)).astype(np.int64), labels)


def _split(whole: Positives) -> dict[str, Positives]:
    labelled = np.unique(whole.rows)
    if len(labelled) < 3:
        raise DataError(f"Three labelled images are needed for three splits. Found {len(labelled)}.")
    order = labelled[fixed_order(len(labelled), "open_images", "split")]
    tenth = max(1, len(order) // 10)
    parts = {"train": order[2 * tenth :], "val": order[:tenth], "test": order[tenth : 2 * tenth]}
    return {split: whole.keep(np.isin(whole.rows, part)) for split, part in parts.items()}
