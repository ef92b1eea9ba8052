"""Open Images v4 as multi-label classification, from csv labels with a folder of images, Parquet or Hugging Face.

Only classes with at least 100 human-verified positives in the training set count, and only images that show one of
them; every class that is not a verified positive is taken as negative. Images are treated as ImageNet's (paper, A.1).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.workloads.datasets.declaration import DatasetDeclaration, DatasetInfo, parse_options
from batchscale.workloads.datasets.files.locations import named_folder, named_or_required
from batchscale.workloads.datasets.files.official import DatasetFiles, Origin
from batchscale.workloads.datasets.images.open_images import (
    MIN_POSITIVES,
    NUM_CLASSES,
    NUM_TRAIN,
    has_open_images_files,
    read_open_images,
)
from batchscale.workloads.datasets.images.options import OpenImagesOptions
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    from batchscale.workloads.workload import Dataset


def _info(name: str, options: OpenImagesOptions) -> DatasetInfo:
    """Describe Open Images; with another threshold for trainable classes only the files can tell its sizes."""
    shape = (options.image_size, options.image_size, 3)
    if options.names_files:
        splits, classes = read_open_images(named_folder(name, options.path), options)
        return DatasetInfo(name, Task.MULTILABEL, len(splits["train"].indices), len(classes), shape)
    if options.min_positives != MIN_POSITIVES:
        return DatasetInfo(name, Task.MULTILABEL, None, None, shape)
    return DatasetInfo(name, Task.MULTILABEL, NUM_TRAIN, NUM_CLASSES, shape)


def _load(name: str, options: OpenImagesOptions, data_dir: Path | None) -> Dataset:
    from batchscale.workloads.datasets.images.cropped import ImageSplit, make_cropped_dataset

    folder = named_or_required(OPEN_IMAGES_FILES, options.path, data_dir) if options.hf is None else None
    splits, classes = read_open_images(folder, options)
    image_splits = {
        split: ImageSplit(part.images, part.indices, partial(part.multi_hot, num_classes=len(classes)), options.crop)
        for split, part in splits.items()
    }
    return make_cropped_dataset(name, image_splits, options.crop, len(classes))


OPEN_IMAGES_FILES = DatasetFiles(
    Origin(
        "open_images_v4",
        (),
        "annotations CC BY 4.0, images CC BY 2.0",
        "get the images and the human-verified image labels from "
        "https://storage.googleapis.com/openimages/web/index.html, then run `batchscale data get "
        "open_images_v4 --from FOLDER` with the folder that holds the csv files and the images",
    ),
    has_open_images_files,
)
OPEN_IMAGES = DatasetDeclaration(
    "open_images_v4", partial(parse_options, OpenImagesOptions), _info, _load, OPEN_IMAGES_FILES, label="Open Images"
)
