"""Folders of images, one per class: ImageNet, Tiny ImageNet, and anything laid out like them. Imports no jax.

Training images lie in ``train/CLASS/`` (or ``train/CLASS/images/``, or ``CLASS/`` alone). Validation images lie in
``val/CLASS/``, or in ``val/images/`` with ``val_annotations.txt``, or in ``val/`` with ``LOC_val_solution.csv``.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from batchscale.errors import DataError, one_line
from batchscale.workloads.datasets.images.encoded import ClassedImages, FolderImages

_SUFFIXES = frozenset({".jpeg", ".jpg", ".png", ".webp", ".bmp"})
_WNID = re.compile(r"n\d{8}")
_INNER = ("", "ILSVRC/Data/CLS-LOC", "Data/CLS-LOC")


def count_wnid_folders(root: Path) -> int:
    """Return the number of folders of training images named after WordNet ids, as in ImageNet."""
    train = _train_folder(root)
    return 0 if train is None else sum(path.is_dir() for path in train.iterdir() if _WNID.fullmatch(path.name))


def has_class_folders(root: Path) -> bool:
    """True if there is any folder of images that names a class."""
    train = _train_folder(root)
    return train is not None and next(_class_folders(train), None) is not None


def read_train_folder(root: Path) -> ClassedImages:
    """Return the training images by class and file name, classes in the order of their names."""
    train = _train_folder(root)
    classes = [] if train is None else sorted(path.name for path in _class_folders(train))
    if train is None or not classes:
        raise DataError(f"{root} must hold train/CLASS/ folders with images. Found none.")
    return _labelled(root, {name: _images_of(train / name) for name in classes}, classes)


def read_val_folder(root: Path, classes: tuple[str, ...]) -> ClassedImages | None:
    """Return the validation images, labelled with the classes of the training set; None without any."""
    base = _base(root)
    val = next((base / name for name in ("val", "validation") if (base / name).is_dir()), None)
    if val is None:
        return None
    if any((val / name).is_dir() for name in classes):
        return _labelled(root, {name: _images_of(val / name) for name in classes if (val / name).is_dir()}, classes)
    for table, folder in ((val / "val_annotations.txt", val / "images"), (root / "LOC_val_solution.csv", val)):
        if table.is_file():
            return _labelled(root, _by_class(table, folder, classes), classes)
    raise DataError(
        f"{val} must hold one folder per class, or images/ and val_annotations.txt, or {root} LOC_val_solution.csv."
    )


def _base(root: Path) -> Path:
    return next((root / inner for inner in _INNER if (root / inner / "train").is_dir()), root)


def _train_folder(root: Path) -> Path | None:
    if (_base(root) / "train").is_dir():
        return _base(root) / "train"
    return root if root.is_dir() and any(_WNID.fullmatch(path.name) for path in root.iterdir()) else None


def _class_folders(train: Path) -> Iterator[Path]:
    for path in train.iterdir():
        if path.is_dir() and not path.name.startswith(".") and next(_names(_inner(path)), None) is not None:
            yield path


def _inner(folder: Path) -> Path:
    return folder / "images" if (folder / "images").is_dir() else folder


def _names(folder: Path) -> Iterator[str]:
    """Yield the names of images; hidden files and other kinds are skipped."""
    for path in folder.iterdir():
        if path.suffix.lower() in _SUFFIXES and not path.name.startswith("."):
            yield path.name


def _images_of(folder: Path) -> list[Path]:
    inner = _inner(folder)
    return [inner / name for name in sorted(_names(inner))]


def _by_class(table: Path, folder: Path, classes: tuple[str, ...]) -> dict[str, list[Path]]:
    """Return images by class from a table whose first two columns are the file (or its stem) and the class."""
    valid, images = set(classes), {name: list[Path]() for name in classes}
    for number, line in enumerate(table.read_text().splitlines(), 1):
        fields = re.split(r"[\t, ]+", line.strip())
        if len(fields) < 2 or fields[0] == "ImageId":
            continue
        file, name = fields[0], fields[1]
        if name not in valid:
            raise DataError(f"{table}, line {number}: {one_line(repr(name))} is no class of the training set.")
        if "/" in file or file.startswith("."):
            raise DataError(f"{table}, line {number}: a file must have no folders. Found {one_line(repr(file))}.")
        images[name].append(folder / (file if "." in file else f"{file}.JPEG"))
    return {name: sorted(paths) for name, paths in images.items()}


def _labelled(root: Path, by_class: dict[str, list[Path]], classes: Iterable[str]) -> ClassedImages:
    names = tuple(classes)
    number = {name: label for label, name in enumerate(names)}
    files = [str(path.relative_to(root)) for paths in by_class.values() for path in paths]
    labels = np.concatenate(
        [np.full(len(paths), number[name], np.int32) for name, paths in by_class.items()] or [np.zeros(0, np.int32)]
    )
    return ClassedImages(FolderImages(root, files), labels, names)
