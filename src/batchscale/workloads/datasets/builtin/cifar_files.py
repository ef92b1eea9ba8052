"""The files of CIFAR-10: the binary version, or the python version read without running it. Imports no jax."""

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError
from batchscale.workloads.datasets.files.archives import read_members
from batchscale.workloads.datasets.files.inert_pickle import InertArray, read_inert_pickle
from batchscale.workloads.datasets.images.fixed_order import LabelledImages

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
