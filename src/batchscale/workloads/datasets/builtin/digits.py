"""The handwritten digits that ship with batchscale: 1,797 images of 8×8, needing no download.

The test set of the UCI "Optical Recognition of Handwritten Digits" (see ``embedded/DIGITS.md`` for origin and
licence). A fixed shuffle splits it into 1,347 training, 225 validation and 225 test images.
"""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from batchscale.workloads.datasets.declaration import DatasetDeclaration, parse_options
from batchscale.workloads.datasets.images.small import (
    LabelledImages,
    PixelOptions,
    fixed_order,
    make_image_dataset,
    scale_pixels,
    ten_classes,
)

if TYPE_CHECKING:
    from batchscale.workloads.workload import Dataset

SPLIT_SIZES = {"train": 1_347, "val": 225, "test": 225}
_BRIGHTEST = 16


def read_splits() -> dict[str, LabelledImages]:
    """Return images (8, 8, 1) with pixels 0 … 16, and labels, by split."""
    with (files(__package__) / "embedded" / "digits.npz").open("rb") as file, np.load(file, allow_pickle=False) as data:
        images, labels = data["images"], data["labels"]
    order = fixed_order(len(labels), "digits", "split")
    ends = np.cumsum(list(SPLIT_SIZES.values()))[:-1]
    parts = zip(SPLIT_SIZES, np.split(order, ends), strict=True)
    return {split: (images[part, :, :, None], labels[part]) for split, part in parts}


def _load(name: str, options: PixelOptions, data_dir: Path | None) -> Dataset:
    del data_dir
    return make_image_dataset(name, read_splits(), scale_pixels(_BRIGHTEST, options.pixel_range))


DIGITS = DatasetDeclaration(
    "digits",
    parse=partial(parse_options, PixelOptions),
    info=partial(ten_classes, SPLIT_SIZES["train"], (8, 8, 1)),
    load=_load,
    without_files="comes with batchscale",
    label="Digits",
)
