import gzip

import numpy as np
import pytest

from batchscale.errors import DataError
from batchscale.workloads.datasets.builtin.mnist import read_idx
from batchscale.workloads.datasets.declaration import dataset_info, load_dataset


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory, idx_files):
    folder = tmp_path_factory.mktemp("data")
    idx_files.write_mnist(folder / "mnist")
    idx_files.write_mnist(folder / "fashion_mnist", zipped=True)
    return folder


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "solution_quality/mnist", "solution_quality/fashion_mnist"])
def test_the_splits_are_those_of_the_paper(data_dir, idx_files, name):
    dataset = load_dataset(name, {}, data_dir)
    assert {split: dataset.splits[split].num_examples for split in dataset.splits} == {
        "train": 55_000,
        "val": 5_000,
        "test": 10_000,
    }
    assert dataset.input_shape == (28, 28, 1) == dataset_info(name, {}).input_shape
    assert dataset.num_outputs == 10
    val, train = (dataset.splits[split].arrays for split in ("val", "train"))
    assert np.array_equal(idx_files.index_of(val["inputs"]), np.arange(5_000))
    assert np.array_equal(idx_files.index_of(train["inputs"]), np.arange(5_000, 60_000))
    assert np.array_equal(train["labels"], np.arange(5_000, 60_000) % 10)


def test_pixels_become_zero_to_one_in_prepare(data_dir):
    dataset = load_dataset("mnist", {}, data_dir)
    stored = {key: array[:3] for key, array in dataset.splits["train"].arrays.items()}
    assert stored["inputs"].dtype == np.uint8
    prepared = dataset.prepare({key: np.asarray(array) for key, array in stored.items()})
    assert np.allclose(prepared["inputs"], stored["inputs"] / 255, rtol=1e-6)  # float32 against float64 division
    assert prepared["inputs"].dtype == np.float32 and prepared["labels"].dtype == np.int32


def test_subsets_are_nested_random_and_fixed(data_dir, idx_files):
    chosen = {}
    for count in (6_875, 13_750, 27_500, 55_000):
        dataset = load_dataset(f"mnist_subsets/mnist_{count}", {}, data_dir)
        arrays = dataset.splits["train"].arrays
        indices = idx_files.index_of(arrays["inputs"])
        assert len(set(indices)) == count == dataset_info(f"mnist_subsets/mnist_{count}", {}).num_train_examples
        assert np.array_equal(arrays["labels"], indices % 10)
        assert dataset.splits["val"].num_examples == 5_000
        chosen[count] = set(indices.tolist())
    assert chosen[6_875] < chosen[13_750] < chosen[27_500] < chosen[55_000] == set(range(5_000, 60_000))
    # The choice is part of what a study measured: these are the first members on every machine, forever.
    assert sorted(chosen[6_875])[:6] == [5012, 5031, 5044, 5047, 5051, 5055]


def test_a_cut_gzip_file_is_named(tmp_path, idx_files):
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(idx_files.to_bytes(np.arange(100)))[:-12])
    with pytest.raises(DataError, match=r"labels\.gz cannot be read"):
        read_idx(path, ())


@pytest.mark.parametrize("change", [lambda content: content[:-1], lambda content: content + b"x"])
def test_a_file_with_bytes_missing_or_too_many_is_named(tmp_path, idx_files, change):
    path = tmp_path / "images"
    path.write_bytes(change(idx_files.to_bytes(np.zeros((3, 2, 2)))))
    with pytest.raises(DataError, match="must hold 12 bytes"):
        read_idx(path, (2, 2))


def test_every_cut_of_a_file_is_refused(tmp_path, idx_files):
    content = idx_files.to_bytes(np.arange(12).reshape(3, 2, 2))
    path = tmp_path / "images"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(DataError):
            read_idx(path, (2, 2))


def test_labels_out_of_range_are_refused(tmp_path, idx_files):
    idx_files.write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "train-labels-idx1-ubyte").write_bytes(idx_files.to_bytes(np.full(60_000, 10)))
    with pytest.raises(DataError, match="labels 0 to 9"):
        load_dataset("mnist", {}, tmp_path)


def test_real_mnist_has_its_known_first_labels(real_data):
    dataset = load_dataset("mnist", {}, real_data("mnist"))
    assert dataset.splits["val"].arrays["labels"][:5].tolist() == [5, 0, 4, 1, 9]
    assert dataset.splits["test"].arrays["labels"][:5].tolist() == [7, 2, 1, 0, 4]
    assert dataset.splits["train"].num_examples == 55_000
