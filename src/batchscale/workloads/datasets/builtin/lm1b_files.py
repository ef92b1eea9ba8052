"""The files of the One Billion Word Benchmark. Imports no jax."""

from pathlib import Path

from batchscale.errors import DataError

NUM_TRAIN = 30_301_028
_TOP = "1-billion-word-language-modeling-benchmark-r13output"
_TRAIN = "training-monolingual.tokenized.shuffled"
_HELD_OUT = "heldout-monolingual.tokenized.shuffled"


def has_lm1b_files(folder: Path) -> bool:
    """Whether training and held-out files are there."""
    return all(_files(folder).values())


def find_lm1b_files(folder: Path) -> dict[str, list[Path]]:
    """The training files, and the first two held-out files as validation and test set (paper, A.1)."""
    found = _files(folder)
    if missing := [split for split, files in found.items() if not files]:
        raise DataError(f"{folder} must hold {_TRAIN}/ and {_HELD_OUT}/: no files for {', '.join(missing)}.")
    return found


def _files(folder: Path) -> dict[str, list[Path]]:
    base = folder / _TOP if (folder / _TOP).is_dir() else folder
    return {
        "train": sorted((base / _TRAIN).glob("news.en-*-of-00100*")),
        "val": sorted((base / _HELD_OUT).glob("news.en.heldout-00000-of-00050*")),
        "test": sorted((base / _HELD_OUT).glob("news.en.heldout-00001-of-00050*")),
    }
