import hashlib

import numpy as np
import pytest

from batchscale.errors import SpecError
from batchscale.workloads.datasets.builtin.digits import read_splits
from batchscale.workloads.datasets.declaration import dataset_info, load_dataset


def test_digits_need_no_files_and_have_the_documented_split():
    dataset = load_dataset("digits", {}, None)
    assert {name: split.num_examples for name, split in dataset.splits.items()} == {
        "train": 1_347,
        "val": 225,
        "test": 225,
    }
    assert dataset.num_train_examples == dataset_info("digits", {}).num_train_examples
    assert dataset.input_shape == (8, 8, 1)


def test_the_images_are_those_of_the_uci_test_set():
    """Counts of each digit as the publisher gives them, and pixel values 0 to 16."""
    splits = read_splits()
    labels = np.concatenate([labels for _, labels in splits.values()])
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    pixels = np.concatenate([images for images, _ in splits.values()])
    assert (pixels.min(), pixels.max()) == (0, 16)
    assert int(pixels.sum()) == 561_718


def test_no_image_is_in_two_splits():
    """The set has no two equal images, so that equal digests would mean a shared example."""
    digests = [hashlib.sha256(image.tobytes()).digest() for images, _ in read_splits().values() for image in images]
    assert len(set(digests)) == len(digests) == 1_797


def test_every_class_is_in_every_split():
    for _, labels in read_splits().values():
        assert set(labels.tolist()) == set(range(10))


def test_prepared_pixels_reach_from_zero_to_one():
    dataset = load_dataset("digits", {}, None)
    inputs = np.asarray(dataset.prepare(dict(dataset.splits["train"].arrays))["inputs"])
    assert (inputs.min(), inputs.max(), inputs.dtype) == (0.0, 1.0, np.float32)


def test_an_unknown_option_is_refused():
    with pytest.raises(SpecError, match="has no option 'size'"):
        load_dataset("digits", {"size": 3}, None)


def test_pixels_fill_the_range_asked_for():
    plain, moved = (
        load_dataset("digits", options, None).prepare(load_dataset("digits", {}, None).splits["val"].arrays)["inputs"]
        for options in ({}, {"pixel_range": (-0.5, 0.5)})
    )
    assert (float(plain.min()), float(plain.max())) == (0, 1)
    np.testing.assert_allclose(moved, plain - 0.5, atol=1e-6)


@pytest.mark.parametrize("wrong", [(1.0, 0.0), (0.0, float("nan")), (0.0,), 3, ("black", "white")])
def test_a_pixel_range_that_is_none_is_refused(wrong):
    with pytest.raises(SpecError, match="pixel_range"):
        load_dataset("digits", {"pixel_range": wrong}, None)
