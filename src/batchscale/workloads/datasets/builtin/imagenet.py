"""ImageNet (ILSVRC 2012) and its two subsets, from a folder of images, Parquet files or Hugging Face.

The paper splits 50,045 test images off the official training set and validates on the official validation set. Here
they are a fixed random choice, and so are the subsets: half of the training images, or half of the classes. Training:
smallest side resized to a random length in [256, 512], random 224×224 cut, random reflection. Evaluation: 256 and the
central cut. Then the mean colour is subtracted (paper, A.1).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from batchscale.errors import DataError
from batchscale.workloads.datasets.declaration import DatasetDeclaration, DatasetInfo, parse_options
from batchscale.workloads.datasets.files.locations import named_folder, named_or_required
from batchscale.workloads.datasets.files.official import DatasetFiles, Origin
from batchscale.workloads.datasets.images.encoded import (
    ClassedImages,
    Selection,
    find_parquet,
    label_images,
    open_store,
    read_hub,
)
from batchscale.workloads.datasets.images.folder import (
    count_wnid_folders,
    has_class_folders,
    read_train_folder,
    read_val_folder,
)
from batchscale.workloads.datasets.images.options import ImageNetOptions
from batchscale.workloads.datasets.images.small import fixed_choice, fixed_order
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    from batchscale.workloads.workload import Dataset

NUM_OFFICIAL, NUM_TEST, NUM_CLASSES = 1_281_167, 50_045, 1_000
HALF_IMAGES, HALF_CLASSES = "imagenet_subsets/imagenet_half_images", "imagenet_subsets/imagenet_half_classes"


def has_imagenet_files(folder: Path) -> bool:
    """True if the folder has folders of all classes, or Parquet files."""
    return count_wnid_folders(folder) == NUM_CLASSES or bool(find_parquet(folder, "train"))


def read_imagenet_splits(name: str, folder: Path | None, options: ImageNetOptions) -> tuple[dict[str, Selection], int]:
    """Return the three splits and the number of classes; ``folder`` is where the files are unless they come by ``hf``.

    Raises:
        DataError: The files do not make a data set, or are not the official ones although no option names them.
    """
    train, val = _read_encoded(folder, options)
    if not options.names_files and (len(train.labels), len(train.classes)) != (NUM_OFFICIAL, NUM_CLASSES):
        raise DataError(
            f"ImageNet has {NUM_OFFICIAL:,} training images of {NUM_CLASSES:,} classes. {folder} holds "
            f"{len(train.labels):,} of {len(train.classes):,}. To train on it as it is, "
            f'set the option path = "{folder}".'
        )
    splits = _split(train, val, options.test_images)
    if name == HALF_IMAGES:
        count = len(splits["train"].labels)
        splits["train"] = splits["train"].keep(fixed_choice(count, count // 2, "imagenet", "half_images"))
    if name == HALF_CLASSES:
        return _half_classes(splits, len(train.classes))
    return splits, len(train.classes)


def _split(train: ClassedImages, val: ClassedImages | None, num_test: int | None) -> dict[str, Selection]:
    """Split test images (and validation images, where the publisher gives none) off the training set."""
    count = len(train.labels)
    share = max(1, round(count * NUM_TEST / NUM_OFFICIAL)) if num_test is None else num_test
    held_out = share if val is not None else 2 * share
    if held_out >= count:
        raise DataError(f"{held_out} images for validation and test cannot be split off {count} training images.")
    order = fixed_order(count, "imagenet", "test")
    whole = Selection(train.images, np.arange(count), train.labels)
    splits = {"train": whole.keep(np.sort(order[held_out:]))}
    splits["val"] = (
        whole.keep(np.sort(order[share:held_out]))
        if val is None
        else Selection(val.images, np.arange(len(val.labels)), val.labels)
    )
    return {**splits, "test": whole.keep(np.sort(order[:share]))}


def _half_classes(splits: dict[str, Selection], num_classes: int) -> tuple[dict[str, Selection], int]:
    """Keep only the images of a fixed half of the classes, in all splits, with new label numbers."""
    classes = fixed_choice(num_classes, num_classes // 2, "imagenet", "half_classes")
    renumbered = np.full(num_classes, -1, np.int32)
    renumbered[classes] = np.arange(len(classes), dtype=np.int32)
    parts = {split: part.keep(np.flatnonzero(renumbered[part.labels] >= 0)) for split, part in splits.items()}
    if any(len(part.labels) == 0 for part in parts.values()):
        raise DataError("Half of the classes leave a split without images: the set is too small for this subset.")
    return {s: Selection(part.images, part.indices, renumbered[part.labels]) for s, part in parts.items()}, len(classes)


def _read_encoded(folder: Path | None, options: ImageNetOptions) -> tuple[ClassedImages, ClassedImages | None]:
    if options.hf is not None:
        hub = read_hub(options.hf, options.hf_config, options.image_column, options.label_column)
        if "train" not in hub:
            raise DataError(f"Hugging Face data set {options.hf!r} must have a split 'train'. Found: {', '.join(hub)}.")
        train = label_images(hub["train"].images, hub["train"].labels, options.hf, hub["train"].classes)
        val = hub.get("val")
        return train, label_images(val.images, val.labels, options.hf, train.classes) if val else None
    assert folder is not None
    parquet = find_parquet(folder, "train")
    if parquet:
        columns = options.image_column, options.label_column
        train = label_images(*open_store(parquet, *columns), str(parquet[0]))
        files = find_parquet(folder, "val")
        return train, label_images(*open_store(files, *columns), str(files[0]), train.classes) if files else None
    if not has_class_folders(folder):
        raise DataError(
            f"{folder} must hold train/CLASS/ folders with images, or train-*.parquet files: found neither."
        )
    train = read_train_folder(folder)
    return train, read_val_folder(folder, train.classes)


def _info(name: str, options: ImageNetOptions) -> DatasetInfo:
    """Describe ImageNet or a subset; only the files can tell the number of images of half the classes."""
    shape = (options.image_size, options.image_size, 3)
    if options.names_files:
        splits, num_classes = read_imagenet_splits(name, named_folder("imagenet", options.path), options)
        return DatasetInfo(name, Task.CLASSIFICATION, len(splits["train"].indices), num_classes, shape)
    if name == HALF_CLASSES:
        return DatasetInfo(name, Task.CLASSIFICATION, None, NUM_CLASSES // 2, shape)
    count = NUM_OFFICIAL - (NUM_TEST if options.test_images is None else options.test_images)
    return DatasetInfo(name, Task.CLASSIFICATION, count // 2 if name == HALF_IMAGES else count, NUM_CLASSES, shape)


def _load(name: str, options: ImageNetOptions, data_dir: Path | None) -> Dataset:
    from batchscale.workloads.datasets.images.cropped import make_class_split, make_cropped_dataset

    folder = named_or_required(IMAGENET_FILES, options.path, data_dir) if options.hf is None else None
    splits, num_classes = read_imagenet_splits(name, folder, options)
    image_splits = {split: make_class_split(selection, options.crop) for split, selection in splits.items()}
    return make_cropped_dataset(name, image_splits, options.crop, num_classes)


IMAGENET_FILES = DatasetFiles(
    Origin(
        "imagenet",
        (),
        "non-commercial research; you must agree to the terms of image-net.org",
        "get ILSVRC 2012 from https://image-net.org, then run `batchscale data get imagenet --from FOLDER` "
        "with the folder that holds train/, a folder for each of the 1,000 classes, and val/ (a part of it, or other "
        "images in class folders, are named by the data set's option path)",
    ),
    has_imagenet_files,
)
DECLARATIONS = tuple(
    DatasetDeclaration(name, partial(parse_options, ImageNetOptions), _info, _load, IMAGENET_FILES, label=label)
    for name, label in (
        ("imagenet", "ImageNet"),
        (HALF_IMAGES, "Half Images ImageNet"),
        (HALF_CLASSES, "Half Classes ImageNet"),
    )
)
