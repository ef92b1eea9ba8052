"""Open Images: the published labels of images, and the splits over trainable classes (paper, A.1). Imports no jax.

Labels are human-verified positives. They are read from csv files (``ImageID,Source,LabelName,Confidence``) beside
folders of images, from Parquet files or from Hugging Face, where a column holds the list of an image's positive labels.
A set without split files is split at random, fixed: a tenth each of its labelled images for validation and test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, one_line
from batchscale.workloads.datasets.images.encoded import EncodedImages, FolderImages, find_parquet, open_store, read_hub
from batchscale.workloads.datasets.images.options import OpenImagesOptions
from batchscale.workloads.datasets.images.small import fixed_order

if TYPE_CHECKING:
    import polars as pl


_SPLIT_NAMES = {"train": ("train",), "val": ("validation", "val"), "test": ("test",)}
_ALONE = "annotations-human-imagelabels.csv"
_MACHINE = "machine"


@dataclass(frozen=True)
class Positives:
    """Images of one split and their positive labels: ``images[rows[i]]`` shows ``names[labels[i]]``."""

    images: EncodedImages
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    names: NDArray[np.str_]

    def keep(self, mask: NDArray[np.bool_]) -> Positives:
        """Return only the labels under the mask."""
        return Positives(self.images, self.rows[mask], self.labels[mask], self.names)


def has_open_images_files(folder: Path) -> bool:
    """True if the folder has label files of Open Images, or Parquet files."""
    return _label_file(folder, "train") is not None or bool(find_parquet(folder, "train"))


def read_positives(folder: Path | None, options: OpenImagesOptions) -> dict[str, Positives]:
    """Return the positives of every split; a set in one piece counts as ``train``."""
    if options.hf is not None:
        hub = read_hub(options.hf, options.hf_config, options.image_column, options.label_column)
        positives = {split: _from_lists(part.images, part.labels, part.classes) for split, part in hub.items()}
    else:
        assert folder is not None
        positives = _from_parquet(folder, options) if find_parquet(folder, "train") else _from_csv(folder, options)
    if "train" not in positives:
        raise DataError(f"{options.hf or folder} must have a split 'train'. Found: {', '.join(positives) or 'none'}.")
    return positives


def _from_parquet(folder: Path, options: OpenImagesOptions) -> dict[str, Positives]:
    files = {split: find_parquet(folder, split) for split in _SPLIT_NAMES}
    return {
        split: _from_lists(*open_store(paths, options.image_column, options.label_column))
        for split, paths in files.items()
        if paths
    }


def _from_lists(images: EncodedImages, labels: Sequence[Any], classes: tuple[str, ...] | None = None) -> Positives:
    """Return positives from a list of labels per image, names or numbers; numbers become names of equal length."""

    def name_of(label: object) -> str:
        if isinstance(label, int):
            return classes[label] if classes else f"{label:08d}"
        return str(label)

    pairs = [(row, name_of(label)) for row, values in enumerate(labels) for label in dict.fromkeys(values or ())]
    names, numbers = np.unique(np.array([name for _, name in pairs], np.str_), return_inverse=True)
    return Positives(images, np.array([row for row, _ in pairs], np.int64), numbers, names)


def _from_csv(folder: Path, options: OpenImagesOptions) -> dict[str, Positives]:
    files = {split: _label_file(folder, split) for split in _SPLIT_NAMES}
    return {
        split: _read_csv(folder, file, split, options.allow_missing)
        for split, file in files.items()
        if file is not None
    }


def _label_file(folder: Path, split: str) -> Path | None:
    """Return the labels file of a split; a file that names no split holds everything and counts as ``train``."""
    for name in _SPLIT_NAMES[split]:
        for pattern in (f"*{name}-{_ALONE}", f"{name}/annotations-human*.csv"):
            if files := sorted(folder.glob(pattern)):
                return files[0]
    return folder / _ALONE if split == "train" and (folder / _ALONE).is_file() else None


def _read_csv(folder: Path, file: Path, split: str, allow_missing: bool) -> Positives:
    """Read one csv file; columns stay in polars as long as possible, for there are tens of millions of rows."""
    import polars as pl

    types = {"ImageID": pl.String, "LabelName": pl.String, "Confidence": pl.Float64}
    positive = (pl.col("Confidence") == 1) & (pl.col("Source") != _MACHINE)
    try:
        rows_of_file = pl.scan_csv(file, schema_overrides=types).filter(positive)
        table = rows_of_file.select("ImageID", "LabelName").unique().collect().sort("ImageID", "LabelName")
    except (pl.exceptions.PolarsError, OSError) as error:
        rule = f"{file} must be a csv file with ImageID,Source,LabelName,Confidence"
        raise DataError(f"{rule}: {one_line(error)}.") from error
    place, files = _image_files(folder, split)
    present = table.join(files, on="ImageID", how="inner", maintain_order="left")
    missing = table["ImageID"].n_unique() - present["ImageID"].n_unique()
    if missing and not allow_missing:
        first = table.join(files, on="ImageID", how="anti", maintain_order="left")["ImageID"][0]
        raise DataError(
            f"{place} lacks {missing:,} of the images that {file.name} labels, the first {one_line(first)}. "
            "Get them, or set the option allow_missing = true to continue without."
        )
    rows = present["ImageID"].rle_id().to_numpy().astype(np.int64)
    images = FolderImages(place, present.unique("ImageID", keep="first", maintain_order=True)["file"].to_list())
    names = present["LabelName"].unique().sort()
    labels = names.search_sorted(present["LabelName"]).to_numpy().astype(np.int64)
    return Positives(images, rows, labels, np.array(names.to_list(), np.str_))


def _image_files(folder: Path, split: str) -> tuple[Path, pl.DataFrame]:
    """Return the folder of a split's images, and a table of ImageID and file name."""
    import polars as pl

    places = [folder / part / name for name in _SPLIT_NAMES[split] for part in ("", "images")]
    for place in (*(folder_of_split / "images" for folder_of_split in places), *places, folder / "images"):
        if place.is_dir():
            names = [path.name for path in place.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png")]
            if names:
                stems = [name.rsplit(".", 1)[0] for name in names]
                return place, pl.DataFrame({"ImageID": stems, "file": names}).unique("ImageID", keep="any")
    raise DataError(f"{folder} must hold the images in {_SPLIT_NAMES[split][0]}/ or images/. Found none.")


NUM_TRAIN, NUM_CLASSES, MIN_POSITIVES = 4_526_492, 7_186, 100


@dataclass(frozen=True)
class MultilabelSelection:
    """Images with the classes they show: those of position i are ``classes[offsets[i]:offsets[i + 1]]``."""

    images: EncodedImages
    indices: NDArray[np.int64]
    offsets: NDArray[np.int64]
    classes: NDArray[np.int32]

    def multi_hot(self, positions: NDArray[np.int64], num_classes: int) -> NDArray[np.uint8]:
        """Return one row per position: 1 for the classes of the image, 0 for all others, assumed negative."""
        labels = np.zeros((len(positions), num_classes), np.uint8)
        for row, position in enumerate(positions):
            labels[row, self.classes[self.offsets[position] : self.offsets[position + 1]]] = 1
        return labels


def read_open_images(
    folder: Path | None, options: OpenImagesOptions
) -> tuple[dict[str, MultilabelSelection], list[str]]:
    """Return the three splits and the names of the trainable classes, in order.

    Raises:
        DataError: No class is trainable, a split is empty, or files that no option names are not the official ones.
    """
    positives = read_positives(folder, options)
    positives = positives if {"val", "test"} <= set(positives) else _split(positives["train"])
    classes = _trainable_classes(positives["train"], options.min_positives)
    if not classes:
        raise DataError(
            f"No class has min_positives = {options.min_positives} positive training images: set the option lower."
        )
    splits = {split: _select(part, classes) for split, part in positives.items()}
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
    """Return only images with a trainable label, in the order of the source."""
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
