"""CIFAR-10: 45,000 training, 5,000 validation and 10,000 test images of 32×32 in colour.

The last 5,000 images of the official training set are the validation set. Each image is standardised by its own mean
and standard deviation over all pixels and channels, as ``tf.image.per_image_standardization`` does (paper, A.1). Read
from the binary version, extracted or in the archive.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from batchscale.errors import DataError
from batchscale.workloads.datasets.declaration import DatasetDeclaration, NoOptions, parse_options
from batchscale.workloads.datasets.files.archives import read_members
from batchscale.workloads.datasets.files.locations import require_files
from batchscale.workloads.datasets.files.official import DatasetFiles, Download, OfficialFile, Origin
from batchscale.workloads.datasets.images.small import LabelledImages, make_image_dataset, ten_classes

if TYPE_CHECKING:
    from batchscale.workloads.workload import Batch, Dataset

NUM_VALIDATION = 5_000
_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_TEST = "test_batch.bin"
_FOLDERS = ("", "cifar-10-batches-bin")
_ARCHIVE = "cifar-10-binary.tar.gz"
_NUM_PIXELS = 3_072
_MEMBER_LIMIT = 64 * 2**20


def has_cifar_files(folder: Path) -> bool:
    """True if the binary version is in the folder, extracted or as the official archive."""
    return _find_extracted(folder) is not None or (folder / _ARCHIVE).is_file()


def read_cifar_splits(folder: Path, images_per_file: int = 10_000) -> dict[str, LabelledImages]:
    """Return images (32, 32, 3) and labels by split; the last 5,000 of the official training set are ``val``."""
    batches = _read_batches(folder, images_per_file)
    images = np.concatenate([batches[name][0] for name in _TRAIN])
    labels = np.concatenate([batches[name][1] for name in _TRAIN])
    return {
        "train": (images[:-NUM_VALIDATION], labels[:-NUM_VALIDATION]),
        "val": (images[-NUM_VALIDATION:], labels[-NUM_VALIDATION:]),
        "test": batches[_TEST],
    }


def _read_batches(folder: Path, count: int) -> dict[str, LabelledImages]:
    paths = _find_extracted(folder)
    if paths is not None:
        return {name: _parse(str(path), path.read_bytes(), count) for name, path in paths.items()}
    archive = folder / _ARCHIVE
    if not archive.is_file():
        raise DataError(f"{folder} does not hold CIFAR-10: {CIFAR_10_FILES.origin.instruction}.")
    members = read_members(archive, {*_TRAIN, _TEST}, _MEMBER_LIMIT)
    batches = {name: _parse(f"{archive}: {name}", content, count) for name, content in members}
    if missing := [name for name in (*_TRAIN, _TEST) if name not in batches]:
        raise DataError(f"{archive} must hold {', '.join((*_TRAIN, _TEST))}. Missing: {', '.join(missing)}.")
    return batches


def _find_extracted(folder: Path) -> dict[str, Path] | None:
    for part in _FOLDERS:
        paths = {name: folder / part / name for name in (*_TRAIN, _TEST)}
        if all(path.is_file() for path in paths.values()):
            return paths
    return None


def _parse(where: str, content: bytes, count: int) -> LabelledImages:
    size = count * (1 + _NUM_PIXELS)
    if len(content) != size:
        raise DataError(f"{where} must hold {size:,} bytes. Found {len(content):,}.")
    rows = np.frombuffer(content, np.uint8).reshape(count, 1 + _NUM_PIXELS)
    pixels, labels = rows[:, 1:], rows[:, 0]
    if labels.max(initial=0) > 9:
        raise DataError(f"{where} must hold labels 0 to 9. Found {labels.max()}.")
    return np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels.copy()


def standardise_images(batch: Batch) -> Batch:
    """Return images less their mean, over their standard deviation or, if larger, 1 / sqrt(number of values)."""
    import jax.numpy as jnp

    pixels = batch["inputs"].astype(jnp.float32)
    least = 1 / math.sqrt(math.prod(pixels.shape[1:]))
    mean = jnp.mean(pixels, axis=(1, 2, 3), keepdims=True)
    deviation = jnp.std(pixels, axis=(1, 2, 3), keepdims=True)
    inputs = (pixels - mean) / jnp.maximum(deviation, least)
    return {**batch, "inputs": inputs, "labels": batch["labels"].astype(jnp.int32)}


def _load(name: str, options: NoOptions, data_dir: Path | None) -> Dataset:
    del options
    return make_image_dataset(name, read_cifar_splits(require_files(CIFAR_10_FILES, data_dir)), standardise_images)


_DOWNLOAD = Download(
    _ARCHIVE,
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    (
        OfficialFile(
            "data_batch_1.bin", 30_730_000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"
        ),
        OfficialFile(
            "data_batch_2.bin", 30_730_000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"
        ),
        OfficialFile(
            "data_batch_3.bin", 30_730_000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"
        ),
        OfficialFile(
            "data_batch_4.bin", 30_730_000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"
        ),
        OfficialFile(
            "data_batch_5.bin", 30_730_000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"
        ),
        OfficialFile("test_batch.bin", 30_730_000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    ),
)
CIFAR_10_FILES = DatasetFiles(
    Origin(
        "cifar_10",
        (_DOWNLOAD,),
        "A. Krizhevsky (2009); cite the technical report",
        f"which gets the binary version ({_ARCHIVE}); the Python version, which is pickled, is not read",
    ),
    has_cifar_files,
)
CIFAR_10 = DatasetDeclaration(
    "cifar_10",
    parse=partial(parse_options, NoOptions),
    info=partial(ten_classes, 45_000, (32, 32, 3)),
    load=_load,
    files=CIFAR_10_FILES,
    label="CIFAR-10",
)
