"""MNIST, its subsets, and Fashion-MNIST: 55,000 training, 5,000 validation and 10,000 test images of 28×28.

The first 5,000 images of the official training files are the validation set. A subset is a fixed random choice of the
55,000 training images, smaller ones contained in larger ones; validation and test sets stay whole (paper, 4.5).
Fashion-MNIST has the same files, sizes and split.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, one_line
from batchscale.workloads.datasets.declaration import DatasetDeclaration, parse_options
from batchscale.workloads.datasets.files.locations import require_files
from batchscale.workloads.datasets.files.official import DatasetFiles, Origin, plain_file
from batchscale.workloads.datasets.images.small import (
    LabelledImages,
    PixelOptions,
    fixed_choice,
    make_image_dataset,
    scale_pixels,
    ten_classes,
)

if TYPE_CHECKING:
    from batchscale.workloads.workload import Dataset


FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
NUM_TRAIN, NUM_VALIDATION = 55_000, 5_000
SUBSETS = (6_875, 13_750, 27_500, NUM_TRAIN)
_SMALLEST = "t10k-labels-idx1-ubyte"
_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_FASHION_MIRRORS = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
)

MNIST_ORIGIN = Origin(
    "mnist",
    (
        plain_file(
            _MIRRORS,
            "train-images-idx3-ubyte",
            47_040_016,
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            ".gz",
        ),
        plain_file(
            _MIRRORS,
            "train-labels-idx1-ubyte",
            60_008,
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            ".gz",
        ),
        plain_file(
            _MIRRORS,
            "t10k-images-idx3-ubyte",
            7_840_016,
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ".gz",
        ),
        plain_file(
            _MIRRORS,
            "t10k-labels-idx1-ubyte",
            10_008,
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ".gz",
        ),
    ),
    terms="CC BY-SA 3.0, Y. LeCun and C. Cortes",
)
FASHION_ORIGIN = Origin(
    "fashion_mnist",
    (
        plain_file(
            _FASHION_MIRRORS,
            "train-images-idx3-ubyte",
            47_040_016,
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            ".gz",
        ),
        plain_file(
            _FASHION_MIRRORS,
            "train-labels-idx1-ubyte",
            60_008,
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            ".gz",
        ),
        plain_file(
            _FASHION_MIRRORS,
            "t10k-images-idx3-ubyte",
            7_840_016,
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            ".gz",
        ),
        plain_file(
            _FASHION_MIRRORS,
            "t10k-labels-idx1-ubyte",
            10_008,
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ".gz",
        ),
    ),
    terms="MIT, Zalando SE",
    how="or install your system's package of it (Debian, Ubuntu: dataset-fashion-mnist)",
)


def has_mnist_files(folder: Path, other: Origin) -> bool:
    """True if the four files exist and are not those of the other set, which have the same names."""
    if any(_find(folder, file) is None for file in FILES):
        return False
    try:
        labels = read_idx(_require(folder, _SMALLEST), ())
    except DataError:
        return True  # damaged: loading reports it
    content = bytes([0, 0, 8, 1]) + len(labels).to_bytes(4, "big") + labels.tobytes()
    digest = hashlib.sha256(content).hexdigest()
    return all(file.sha256 != digest for file in other.contents)


def read_mnist_splits(folder: Path) -> dict[str, LabelledImages]:
    """Return images (28, 28, 1) and labels by split; the first 5,000 of the official training set are ``val``."""
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
        raise DataError(f"{folder} has no file {name} (or {name}.gz). Run `batchscale data get` for it again.")
    return path


def _load(files: DatasetFiles, count: int, name: str, options: PixelOptions, data_dir: Path | None) -> Dataset:
    splits = read_mnist_splits(require_files(files, data_dir))
    if count < len(splits["train"][1]):
        splits = {**splits, "train": _choose(splits["train"], count)}
    return make_image_dataset(name, splits, scale_pixels(255, options.pixel_range))


def _choose(split: LabelledImages, count: int) -> LabelledImages:
    images, labels = split
    indices = fixed_choice(len(labels), count, "mnist", "subset")
    return images[indices], labels[indices]


def _declare(name: str, files: DatasetFiles, label: str, count: int = NUM_TRAIN) -> DatasetDeclaration:
    return DatasetDeclaration(
        name,
        parse=partial(parse_options, PixelOptions),
        info=partial(ten_classes, count, (28, 28, 1)),
        load=partial(_load, files, count),
        files=files,
        label=label,
    )


MNIST_FILES = DatasetFiles(MNIST_ORIGIN, partial(has_mnist_files, other=FASHION_ORIGIN))
FASHION_FILES = DatasetFiles(FASHION_ORIGIN, partial(has_mnist_files, other=MNIST_ORIGIN), "fashion-mnist")
DECLARATIONS = (
    _declare("mnist", MNIST_FILES, "MNIST"),
    _declare("fashion_mnist", FASHION_FILES, "Fashion MNIST"),
    _declare("solution_quality/mnist", MNIST_FILES, "MNIST"),
    _declare("solution_quality/fashion_mnist", FASHION_FILES, "Fashion MNIST"),
    *(_declare(f"mnist_subsets/mnist_{count}", MNIST_FILES, f"MNIST {count:,}", count) for count in SUBSETS),
)


_UNSIGNED_BYTE = 8
_LIMIT = 2**31


def read_idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return the unsigned bytes of an IDX file whose items have this shape; the first axis counts the items.

    Raises:
        DataError: The file cannot be read, is cut short, has bytes too many, or holds something else.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            header = file.read(4 + 4 * (1 + len(shape)))
            count = _item_count(path, header, shape)
            size = count * math.prod(shape)
            content = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read as an IDX file: {one_line(error)}. Download it again.") from error
    if len(content) != size:
        actual = "more" if len(content) > size else f"{len(content):,}"
        raise DataError(f"{path} must hold {size:,} bytes after its header, found {actual}. Download it again.")
    return np.frombuffer(content, np.uint8).reshape(count, *shape)


def _item_count(path: Path, header: bytes, shape: tuple[int, ...]) -> int:
    expected = bytes([0, 0, _UNSIGNED_BYTE, 1 + len(shape)])
    if header[:4] != expected or len(header) != 8 + 4 * len(shape):
        raise DataError(
            f"{path} is not an IDX file of unsigned bytes with {1 + len(shape)} axes: it starts with "
            f"{header[:4].hex(' ')}, expected {expected.hex(' ')}."
        )
    count, *item_shape = (int.from_bytes(header[i : i + 4], "big") for i in range(4, len(header), 4))
    if tuple(item_shape) != shape or count * math.prod(shape) > _LIMIT:
        raise DataError(f"{path} must hold items of shape {shape}. Found {count:,} of shape {tuple(item_shape)}.")
    return count
