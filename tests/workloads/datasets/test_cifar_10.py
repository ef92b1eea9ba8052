import pickle
import tarfile
from functools import cache

import numpy as np
import pytest

from batchscale.errors import DataError
from batchscale.workloads.datasets.builtin.cifar_10 import read_cifar_splits, standardise_images
from batchscale.workloads.datasets.declaration import load_dataset

COUNT = 1_100  # a file; the official ones hold 10,000
BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


@cache
def rows(number):
    """10,000 images whose first red pixels spell their index; green is 100 and blue 200 in the last corner."""
    index = np.arange(COUNT) + COUNT * number
    pixels = np.zeros((COUNT, 3, 32, 32), np.uint8)
    pixels[:, 0, 0, 0], pixels[:, 0, 0, 1] = index // 256, index % 256
    pixels[:, 1, 31, 31], pixels[:, 2, 31, 31] = 100, 200
    return pixels.reshape(COUNT, 3_072), (index % 10).astype(np.uint8)


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("binary")
    for number, name in enumerate(BATCHES):
        pixels, labels = rows(number)
        (folder / f"{name}.bin").write_bytes(np.concatenate([labels[:, None], pixels], axis=1).tobytes())
    return folder


def check(splits):
    assert {name: len(labels) for name, (_, labels) in splits.items()} == {
        "train": 5 * COUNT - 5_000,
        "val": 5_000,
        "test": COUNT,
    }
    first = {"train": 0, "val": 5 * COUNT - 5_000, "test": 5 * COUNT}
    for name, (images, labels) in splits.items():
        index = images[:, 0, 0, 0].astype(int) * 256 + images[:, 0, 1, 0]
        assert np.array_equal(index, np.arange(len(labels)) + first[name])
        assert np.array_equal(labels, index % 10)
        assert images[0, 31, 31].tolist() == [0, 100, 200]


@pytest.mark.parametrize("inner", ["elsewhere", "cifar-10-batches-bin"])
def test_the_binary_version_gives_the_splits_of_the_paper(tmp_path, binary, inner):
    (tmp_path / inner).symlink_to(binary)
    check(read_cifar_splits(tmp_path if inner.startswith("cifar") else tmp_path / inner, COUNT))


def test_a_folder_with_only_the_pickled_version_gets_told_which_archive_to_get(tmp_path):
    for name in BATCHES:
        (tmp_path / name).write_bytes(pickle.dumps({}))
    (tmp_path / "cifar-10-python.tar.gz").touch()
    with pytest.raises(DataError, match=r"(?s)data get cifar_10`.*cifar-10-binary\.tar\.gz.*pickled, is not read"):
        load_dataset("cifar_10", {}, tmp_path)
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz"):
        read_cifar_splits(tmp_path)


def test_the_archive_is_read_in_place(tmp_path, binary):
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(binary, "cifar-10-batches-bin")
    check(read_cifar_splits(tmp_path, COUNT))


def test_a_cut_binary_file_is_named(tmp_path, binary):
    for path in binary.iterdir():
        (tmp_path / path.name).symlink_to(path)
    cut = tmp_path / "data_batch_3.bin"
    cut.unlink()
    cut.write_bytes((binary / cut.name).read_bytes()[:-1])
    with pytest.raises(DataError, match=r"data_batch_3\.bin must hold 3,380,300 bytes"):
        read_cifar_splits(tmp_path, COUNT)


def test_images_are_standardised_as_tensorflow_does():
    """The formula of tf.image.per_image_standardization in float64, also for an image of one colour."""
    images = np.random.RandomState(0).randint(0, 256, (4, 32, 32, 3)).astype(np.uint8)
    images[3] = 77
    images[2] = 9
    images[2, 0, 0, 0] = 10  # standard deviation 0.018042, just above the least one of 0.018042
    prepared = standardise_images({"inputs": images, "labels": np.arange(4, dtype=np.int32)})["inputs"]
    exact = images.astype(np.float64)
    mean = exact.mean(axis=(1, 2, 3), keepdims=True)
    deviation = np.maximum(exact.std(axis=(1, 2, 3), keepdims=True), 1 / np.sqrt(3072))
    # float32 rounding of a mean near 128 is 1e-5; divided by a deviation near 74
    assert np.allclose(prepared[:2], ((exact - mean) / deviation)[:2], atol=1e-5)
    assert np.allclose(prepared[2], ((exact - mean) / deviation)[2], atol=1e-3)  # the mean's rounding over 0.018
    assert np.all(np.asarray(prepared[3]) == 0)


def test_real_cifar_10_has_its_known_first_labels(real_data):
    dataset = load_dataset("cifar_10", {}, real_data("cifar_10"))
    assert dataset.splits["train"].arrays["labels"][:5].tolist() == [6, 9, 9, 4, 1]
    assert dataset.splits["test"].arrays["labels"][:5].tolist() == [3, 8, 8, 0, 6]
    assert dataset.splits["train"].arrays["inputs"][0, 0, 0].tolist() == [59, 62, 63]
