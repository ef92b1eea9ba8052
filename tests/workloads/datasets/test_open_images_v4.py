import io

import numpy as np
import polars as pl
import pytest
from PIL import Image

from batchscale.errors import DataError
from batchscale.workloads.datasets.declaration import dataset_info, load_dataset

NAME = "open_images_v4"
ROWS = {
    "train": ["a0,verification,/m/x,1", "a0,verification,/m/y,1", "a1,crowdsource-verification,/m/x,1",
              "a1,verification,/m/x,1", "a2,verification,/m/y,0", "a3,machine,/m/x,1", "a4,verification,/m/rare,1",
              "a5,verification,/m/y,1", "a5,verification,/m/x,0"],
    "validation": ["b0,verification,/m/y,1", "b1,verification,/m/rare,1", "b2,verification,/m/unseen,1"],
    "test": ["c0,verification,/m/x,1", "c0,verification,/m/rare,1"],
}  # fmt: skip


def png(red):
    out = io.BytesIO()
    Image.new("RGB", (9, 9), (red, 0, 0)).save(out, "PNG")
    return out.getvalue()


def write(root):
    for split, rows in ROWS.items():
        (root / split).mkdir(parents=True)
        lines = "\n".join(["ImageID,Source,LabelName,Confidence", *rows, ""])
        (root / f"{split}-annotations-human-imagelabels.csv").write_text(lines)
        for image in {row.split(",")[0] for row in rows}:
            (root / split / f"{image}.jpg").write_bytes(png(int(image[1])))
    return {"path": str(root), "image_size": 8, "min_positives": 2}


def contents(split):
    """The number of each image, and the classes it shows."""
    batch = split.read(np.arange(split.num_examples), None)
    return {int(x[0, 0, 0]): np.flatnonzero(labels).tolist() for x, labels in zip(*batch.values(), strict=True)}


def test_only_verified_positives_of_trainable_classes_count(tmp_path):
    dataset = load_dataset(NAME, write(tmp_path), None)
    assert dataset.num_outputs == 2  # x and y are shown by two training images each, the others by one or none
    assert contents(dataset.splits["train"]) == {0: [0, 1], 1: [0], 5: [1]}
    assert contents(dataset.splits["val"]) == {0: [1]}
    assert contents(dataset.splits["test"]) == {0: [0]}


def test_labels_are_float_vectors_after_prepare(tmp_path):
    dataset = load_dataset(NAME, write(tmp_path), None)
    batch = dataset.prepare(dataset.splits["train"].read(np.array([1, 0]), np.array([1, 2])))
    assert batch["labels"].dtype == np.float32
    assert batch["labels"].tolist() == [[1, 0], [1, 1]]


def test_a_lower_threshold_makes_more_classes_trainable(tmp_path):
    dataset = load_dataset(NAME, {**write(tmp_path), "min_positives": 1}, None)
    assert dataset.num_outputs == 3
    assert contents(dataset.splits["val"]) == {0: [2], 1: [0]}


def test_info_of_named_files_are_those_of_the_loaded_set(tmp_path):
    options = write(tmp_path)
    info, dataset = dataset_info(NAME, options), load_dataset(NAME, options, None)
    assert (info.num_train_examples, info.num_outputs) == (dataset.num_train_examples, dataset.num_outputs) == (3, 2)
    published = dataset_info(NAME, {})
    assert (published.num_train_examples, published.num_outputs) == (4_526_492, 7_186)


def test_labelled_images_that_are_not_there_are_named_or_passed_over(tmp_path):
    options = write(tmp_path)
    (tmp_path / "train" / "a5.jpg").unlink()
    with pytest.raises(DataError, match=r"lacks 1 of the images.*the first a5.*allow_missing"):
        load_dataset(NAME, options, None)
    dataset = load_dataset(NAME, {**options, "allow_missing": True, "min_positives": 1}, None)
    assert contents(dataset.splits["train"]) == {0: [1, 2], 1: [1], 4: [0]}


def test_a_threshold_that_leaves_nothing_is_refused(tmp_path):
    with pytest.raises(DataError, match="min_positives = 100"):
        load_dataset(NAME, {**write(tmp_path), "min_positives": 100}, None)


def test_a_csv_file_of_another_form_is_named(tmp_path):
    options = write(tmp_path)
    (tmp_path / "train-annotations-human-imagelabels.csv").write_text("Image,Label\na,b\n")
    with pytest.raises(DataError, match="must be a csv file with ImageID,Source,LabelName,Confidence"):
        load_dataset(NAME, options, None)


def test_a_small_set_is_not_taken_for_open_images_unless_it_is_named(tmp_path):
    root = tmp_path / NAME
    rows = [f"{i:03d},verification,/m/x,1" for i in range(130)]
    root.mkdir()
    text = "\n".join(["ImageID,Source,LabelName,Confidence", *rows, ""])
    (root / "annotations-human-imagelabels.csv").write_text(text)
    (root / "images").mkdir()
    for row in rows:
        (root / "images" / f"{row[:3]}.jpg").write_bytes(png(1))
    with pytest.raises(DataError, match=r"holds 104 of 1\. To train on it as it is, set the option path"):
        load_dataset(NAME, {}, tmp_path)


def test_parquet_with_lists_of_labels_gives_the_same(tmp_path):
    labels = [["x", "y"], ["x"], [], ["rare"], ["y", "y"], None]
    train = pl.DataFrame({"image": [png(n) for n in range(6)], "labels": labels})
    train.write_parquet(tmp_path / "train-0.parquet")
    for name in ("validation", "test"):
        train[:2].write_parquet(tmp_path / f"{name}-0.parquet")
    dataset = load_dataset(NAME, {"path": str(tmp_path), "image_size": 8, "min_positives": 2}, None)
    assert contents(dataset.splits["train"]) == {0: [0, 1], 1: [0], 4: [1]}
    assert contents(dataset.splits["val"]) == {0: [0, 1], 1: [0]}


def test_real_multilabel_images(real_data):
    folder = real_data("coco128-multilabel")
    dataset = load_dataset(NAME, {"path": str(folder), "min_positives": 1, "image_size": 32}, None)
    counts = {name: split.num_examples for name, split in dataset.splits.items()}
    assert counts == {"train": 102, "val": 12, "test": 12}  # 126 of 128 have a label
    table = pl.read_csv(folder / "annotations-human-imagelabels.csv", schema_overrides={"ImageID": pl.String})
    positives = sum(
        int(split.read(np.arange(split.num_examples), None)["labels"].sum()) for split in dataset.splits.values()
    )
    assert dataset.num_outputs == 69  # two classes appear in validation or test images only
    assert (len(table), positives) == (362, 360)
