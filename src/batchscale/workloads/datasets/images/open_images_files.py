"""The labels of Open Images as published: human-verified positives of each image. Imports no jax.

Read from csv files (``ImageID,Source,LabelName,Confidence``) beside folders of images, from Parquet files or from
Hugging Face, where a column holds the list of an image's positive labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, one_line
from batchscale.workloads.datasets.images.encoded import EncodedImages, FolderImages
from batchscale.workloads.datasets.images.hub import read_hub
from batchscale.workloads.datasets.images.options import OpenImagesOptions
from batchscale.workloads.datasets.images.store import find_parquet, open_store

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
        """Only the labels under the mask."""
        return Positives(self.images, self.rows[mask], self.labels[mask], self.names)


def has_open_images_files(folder: Path) -> bool:
    """Whether label files in the form of Open Images, or Parquet files, are in the folder."""
    return _label_file(folder, "train") is not None or bool(find_parquet(folder, "train"))


def read_positives(folder: Path | None, options: OpenImagesOptions) -> dict[str, Positives]:
    """The positives of every split there is; a set in one piece counts as ``train``."""
    if options.hf is not None:
        hub = read_hub(options.hf, options.hf_config, options.image_column, options.label_column)
        found = {split: _from_lists(part.images, part.labels, part.classes) for split, part in hub.items()}
    else:
        assert folder is not None
        found = _from_parquet(folder, options) if find_parquet(folder, "train") else _from_csv(folder, options)
    if "train" not in found:
        raise DataError(f"{options.hf or folder} must have a split 'train'. Found: {', '.join(found) or 'none'}.")
    return found


def _from_parquet(folder: Path, options: OpenImagesOptions) -> dict[str, Positives]:
    files = {split: find_parquet(folder, split) for split in _SPLIT_NAMES}
    return {
        split: _from_lists(*open_store(paths, options.image_column, options.label_column))
        for split, paths in files.items()
        if paths
    }


def _from_lists(images: EncodedImages, labels: Sequence[Any], classes: tuple[str, ...] | None = None) -> Positives:
    """From a list of labels per image, names or numbers; numbers keep their order as names of equal length."""

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
    """The human-verified labels of a split; a file that names no split holds everything and counts as ``train``."""
    for name in _SPLIT_NAMES[split]:
        for pattern in (f"*{name}-{_ALONE}", f"{name}/annotations-human*.csv"):
            if found := sorted(folder.glob(pattern)):
                return found[0]
    return folder / _ALONE if split == "train" and (folder / _ALONE).is_file() else None


def _read_csv(folder: Path, file: Path, split: str, allow_missing: bool) -> Positives:
    """Columns stay in polars up to the numbers, for the training set has tens of millions of rows."""
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
            "Get them, or set the option allow_missing = true to go on without."
        )
    rows = present["ImageID"].rle_id().to_numpy().astype(np.int64)
    images = FolderImages(place, present.unique("ImageID", keep="first", maintain_order=True)["file"].to_list())
    names = present["LabelName"].unique().sort()
    labels = names.search_sorted(present["LabelName"]).to_numpy().astype(np.int64)
    return Positives(images, rows, labels, np.array(names.to_list(), np.str_))


def _image_files(folder: Path, split: str) -> tuple[Path, pl.DataFrame]:
    """The folder of a split's images, and a table of ImageID and file name."""
    import polars as pl

    places = [folder / part / name for name in _SPLIT_NAMES[split] for part in ("", "images")]
    for place in (*(one / "images" for one in places), *places, folder / "images"):
        if place.is_dir():
            names = [path.name for path in place.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png")]
            if names:
                stems = [name.rsplit(".", 1)[0] for name in names]
                return place, pl.DataFrame({"ImageID": stems, "file": names}).unique("ImageID", keep="any")
    raise DataError(f"{folder} must hold the images in {_SPLIT_NAMES[split][0]}/ or images/: there are none.")
