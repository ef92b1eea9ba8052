"""CIFAR-10: 45,000 training, 5,000 validation and 10,000 test images of 32×32 in colour.

The last 5,000 images of the official training set are the validation set. Each image is standardised by its own mean
and standard deviation over all pixels and channels, as ``tf.image.per_image_standardization`` does (paper, A.1). Read
from the binary version, or from the python version without running it, extracted or in the archive.
"""

from __future__ import annotations

import io
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError
from batchscale.workloads.datasets.declaration import DatasetDeclaration, NoOptions, parse_options
from batchscale.workloads.datasets.files.archives import read_members
from batchscale.workloads.datasets.files.inert_pickle import InertArray, read_inert_pickle
from batchscale.workloads.datasets.files.locations import require_files
from batchscale.workloads.datasets.files.official import DatasetFiles, Download, OfficialFile, Origin
from batchscale.workloads.datasets.images.small import LabelledImages, make_image_dataset, ten_classes

if TYPE_CHECKING:
    from batchscale.workloads.workload import Batch, Dataset

NUM_VALIDATION = 5_000
_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
_NAMES = (*_TRAIN, "test_batch")
_FOLDERS = ("", "cifar-10-batches-bin", "cifar-10-batches-py")
_ARCHIVES = ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz")
_NUM_PIXELS = 3_072
_PICKLE_LIMIT = 64 * 2**20


def has_cifar_files(folder: Path) -> bool:
    """Whether either version is there, extracted or as the official archive."""
    return _extracted(folder) is not None or _archive(folder) is not None


def read_cifar_splits(folder: Path, images_per_file: int = 10_000) -> dict[str, LabelledImages]:
    """Images (32, 32, 3) and labels by split; the last 5,000 of the official training set are ``val``."""
    batches = _read_batches(folder, images_per_file)
    images = np.concatenate([batches[name][0] for name in _TRAIN])
    labels = np.concatenate([batches[name][1] for name in _TRAIN])
    return {
        "train": (images[:-NUM_VALIDATION], labels[:-NUM_VALIDATION]),
        "val": (images[-NUM_VALIDATION:], labels[-NUM_VALIDATION:]),
        "test": batches["test_batch"],
    }


def _read_batches(folder: Path, count: int) -> dict[str, LabelledImages]:
    paths = _extracted(folder)
    if paths is not None:
        return {name: _parse(str(path), path.read_bytes(), count) for name, path in paths.items()}
    archive = _archive(folder)
    if archive is None:
        raise DataError(f"{folder} does not hold CIFAR-10. Run `batchscale data get cifar_10`.")
    wanted = {f"{name}{end}" for name in _NAMES for end in ("", ".bin")}
    found = dict(read_members(archive, wanted, _PICKLE_LIMIT))
    batches = {
        name.removesuffix(".bin"): _parse(f"{archive}: {name}", content, count) for name, content in found.items()
    }
    if missing := sorted(set(_NAMES) - set(batches)):
        raise DataError(f"{archive} must hold {', '.join(_NAMES)}. Missing: {', '.join(missing)}.")
    return batches


def _extracted(folder: Path) -> dict[str, Path] | None:
    for part in _FOLDERS:
        for end in (".bin", ""):
            paths = {name: folder / part / f"{name}{end}" for name in _NAMES}
            if all(path.is_file() for path in paths.values()):
                return paths
    return None


def _archive(folder: Path) -> Path | None:
    return next((folder / name for name in _ARCHIVES if (folder / name).is_file()), None)


def _parse(where: str, content: bytes, count: int) -> LabelledImages:
    if where.endswith(".bin"):
        size = count * (1 + _NUM_PIXELS)
        if len(content) != size:
            raise DataError(f"{where} must hold {size:,} bytes. Found {len(content):,}.")
        rows = np.frombuffer(content, np.uint8).reshape(count, 1 + _NUM_PIXELS)
        pixels, labels = rows[:, 1:], rows[:, 0]
    else:
        pixels, labels = _parse_python_version(where, content, count)
    if labels.max(initial=0) > 9:
        raise DataError(f"{where} must hold labels 0 to 9. Found {labels.max()}.")
    return np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels.copy()


def _parse_python_version(where: str, content: bytes, count: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    if len(content) > _PICKLE_LIMIT:
        raise DataError(f"{where} is too large for a batch of CIFAR-10: {len(content):,} bytes.")
    value = read_inert_pickle(where, io.BytesIO(content))
    table = {key.decode() if isinstance(key, bytes) else key: item for key, item in value.items()}
    data, labels = table.get("data"), table.get("labels")
    rule = f"{where} must hold `data`, {count:,} rows of {_NUM_PIXELS:,} bytes, and as many `labels` from 0 to 9."
    if not isinstance(data, InertArray) or data.shape != (count, _NUM_PIXELS) or not isinstance(labels, list):
        raise DataError(rule)
    if len(labels) != count or not all(type(label) is int and 0 <= label <= 9 for label in labels):
        raise DataError(rule)
    return data.to_bytes_array(where), np.array(labels, np.uint8)


def standardise_images(batch: Batch) -> Batch:
    """Every image less its mean, over its standard deviation or, if that is larger, 1 / sqrt(number of values)."""
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
    "cifar-10-binary.tar.gz",
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
    Origin("cifar_10", (_DOWNLOAD,), "A. Krizhevsky (2009); cite the technical report"), has_cifar_files
)
CIFAR_10 = DatasetDeclaration(
    "cifar_10",
    parse=partial(parse_options, NoOptions),
    info=partial(ten_classes, 45_000, (32, 32, 3)),
    load=_load,
    files=CIFAR_10_FILES,
    label="CIFAR-10",
)
