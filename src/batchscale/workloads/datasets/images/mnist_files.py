"""The four IDX files of MNIST and Fashion-MNIST, plain or gzipped. Imports no jax."""

import hashlib
from pathlib import Path

from batchscale.errors import DataError
from batchscale.workloads.datasets.files.origin import read_sources
from batchscale.workloads.datasets.images.fixed_order import LabelledImages
from batchscale.workloads.datasets.images.idx import read_idx

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
NUM_VALIDATION = 5_000
_SMALLEST = "t10k-labels-idx1-ubyte"


def has_mnist_files(folder: Path, name: str) -> bool:
    """Whether the four files are there and are not those of the other set, which bear the same names."""
    if any(_find(folder, file) is None for file in FILES):
        return False
    try:
        labels = read_idx(_require(folder, _SMALLEST), ())
    except DataError:
        return True  # there, but damaged: loading says how
    content = bytes([0, 0, 8, 1]) + len(labels).to_bytes(4, "big") + labels.tobytes()
    digest = hashlib.sha256(content).hexdigest()
    others = {"mnist", "fashion_mnist"} - {name}
    official = (file for other in others for file in read_sources()[other].contents)
    return all(file.sha256 != digest for file in official)


def read_mnist_splits(folder: Path) -> dict[str, LabelledImages]:
    """Images (28, 28, 1) and labels by split; the first 5,000 of the official training set are ``val``."""
    images, labels = _read_pair(folder, "train", 60_000)
    return {
        "train": (images[NUM_VALIDATION:], labels[NUM_VALIDATION:]),
        "val": (images[:NUM_VALIDATION], labels[:NUM_VALIDATION]),
        "test": _read_pair(folder, "t10k", 10_000),
    }


def _read_pair(folder: Path, part: str, count: int) -> LabelledImages:
    images = read_idx(_require(folder, f"{part}-images-idx3-ubyte"), (28, 28))[..., None]
    path = _require(folder, f"{part}-labels-idx1-ubyte")
    labels = read_idx(path, ())
    if not len(images) == len(labels) == count:
        raise DataError(
            f"{folder} must hold {count:,} {part} images and labels. Found {len(images):,} and {len(labels):,}."
        )
    if labels.max(initial=0) > 9:
        raise DataError(f"{path} must hold labels 0 to 9. Found {labels.max()}.")
    return images, labels


def _find(folder: Path, name: str) -> Path | None:
    candidates = (folder / name, folder / f"{name}.gz", folder / name.replace("-idx", ".idx"))
    return next((path for path in candidates if path.is_file()), None)


def _require(folder: Path, name: str) -> Path:
    path = _find(folder, name)
    if path is None:
        raise DataError(f"{folder} has no file {name} (or {name}.gz). Run `batchscale data get` for it anew.")
    return path
