"""Which pictures of ImageNet are training, validation and test set, also for its two subsets. Imports no jax.

The paper splits 50,045 test pictures off the official training set and validates on the official validation set. Here
they are a fixed random choice, and so are the subsets: half of the training pictures, or half of the classes.
"""

from pathlib import Path

import numpy as np

from batchscale.errors import DataError
from batchscale.workloads.datasets.images.encoded import LabelledSource, Selection, label_images
from batchscale.workloads.datasets.images.fixed_order import fixed_choice, fixed_order
from batchscale.workloads.datasets.images.folder import (
    has_class_folders,
    has_wnid_folders,
    read_train_folder,
    read_val_folder,
)
from batchscale.workloads.datasets.images.hub import read_hub
from batchscale.workloads.datasets.images.options import ImageNetOptions
from batchscale.workloads.datasets.images.store import find_parquet, open_store

NUM_OFFICIAL, NUM_TEST, NUM_CLASSES = 1_281_167, 50_045, 1_000
HALF_IMAGES, HALF_CLASSES = "imagenet_subsets/imagenet_half_images", "imagenet_subsets/imagenet_half_classes"


def has_imagenet_files(folder: Path) -> bool:
    """Whether ImageNet, or something laid out like it, is in the folder: pictures or Parquet."""
    return has_wnid_folders(folder) or bool(find_parquet(folder, "train"))


def read_imagenet_splits(name: str, folder: Path | None, options: ImageNetOptions) -> tuple[dict[str, Selection], int]:
    """The three splits and the number of classes; ``folder`` is where the files are unless they come by ``hf``.

    Raises:
        DataError: The files do not make a data set, or are not the official ones where those were asked for.
    """
    train, val = _read_sources(folder, options)
    if not options.own_files and (len(train.labels), len(train.classes)) != (NUM_OFFICIAL, NUM_CLASSES):
        raise DataError(
            f"ImageNet has {NUM_OFFICIAL:,} training pictures of {NUM_CLASSES:,} classes. {folder} holds "
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


def _split(train: LabelledSource, val: LabelledSource | None, num_test: int | None) -> dict[str, Selection]:
    """Test pictures (and validation pictures, where the publisher gives none) split off the training set."""
    count = len(train.labels)
    share = max(1, round(count * NUM_TEST / NUM_OFFICIAL)) if num_test is None else num_test
    held_out = share if val is not None else 2 * share
    if held_out >= count:
        raise DataError(f"{held_out} pictures for validation and test cannot be split off {count} training pictures.")
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
    """Only the pictures of a fixed half of the classes, in all splits, with labels counted anew."""
    chosen = fixed_choice(num_classes, num_classes // 2, "imagenet", "half_classes")
    renumbered = np.full(num_classes, -1, np.int32)
    renumbered[chosen] = np.arange(len(chosen), dtype=np.int32)
    kept = {split: part.keep(np.flatnonzero(renumbered[part.labels] >= 0)) for split, part in splits.items()}
    if any(len(part.labels) == 0 for part in kept.values()):
        raise DataError("Half of the classes leave a split without pictures: the set is too small for this subset.")
    return {s: Selection(part.images, part.indices, renumbered[part.labels]) for s, part in kept.items()}, len(chosen)


def _read_sources(folder: Path | None, options: ImageNetOptions) -> tuple[LabelledSource, LabelledSource | None]:
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
            f"{folder} must hold train/CLASS/ folders with pictures, or train-*.parquet files: found neither."
        )
    train = read_train_folder(folder)
    return train, read_val_folder(folder, train.classes)
