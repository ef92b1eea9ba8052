import gzip
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def no_data_of_this_machine(monkeypatch, tmp_path):
    """Tests see no data but what they make: no BATCHSCALE_DATA, an empty cache, no packages of the system."""
    monkeypatch.delenv("BATCHSCALE_DATA", raising=False)
    monkeypatch.delenv("BATCHSCALE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("batchscale.workloads.datasets.files.locations.SYSTEM_FOLDER", tmp_path / "no_packages")


@pytest.fixture
def real_data():
    """A function giving the folder of a real data set below BATCHSCALE_TEST_DATA, or skipping the test."""

    def find(name: str) -> Path:
        folder = Path(os.environ.get("BATCHSCALE_TEST_DATA", "")) / name
        if not os.environ.get("BATCHSCALE_TEST_DATA") or not folder.is_dir():
            pytest.skip(f"set BATCHSCALE_TEST_DATA to a folder that holds {name}/")
        return folder

    return find


@pytest.fixture(scope="session")
def idx_files():
    """Makers of IDX files."""
    return SimpleNamespace(to_bytes=idx_bytes, write_mnist=write_mnist, index_of=index_of)


def idx_bytes(array: np.ndarray) -> bytes:
    """The array as the content of an IDX file of unsigned bytes."""
    axes = b"".join(int(length).to_bytes(4, "big") for length in array.shape)
    return bytes([0, 0, 8, array.ndim]) + axes + array.astype(np.uint8).tobytes()


def write_mnist(folder: Path, *, zipped: bool = False) -> None:
    """Four files of the official sizes, whose images and labels follow from their index."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 60_000), ("t10k", 10_000)):
        index = np.arange(count)
        images = np.zeros((count, 28, 28), np.uint8)
        images[:, 0, 0], images[:, 0, 1] = index // 256, index % 256
        images[:, 27, 27] = 255
        for name, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", index % 10)):
            content = idx_bytes(array)
            if zipped:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content, 1))
            else:
                (folder / name).write_bytes(content)


def index_of(images: np.ndarray) -> np.ndarray:
    """The index in its file that each image of ``write_mnist`` carries."""
    return images[:, 0, 0, 0].astype(int) * 256 + images[:, 0, 1, 0]
