import io

import numpy as np
import polars as pl
import pytest
from PIL import Image

from batchscale.errors import DataError, SpecError
from batchscale.workloads.datasets.declaration import dataset_info, load_dataset
from batchscale.workloads.datasets.images.cropped import MEAN_RGB

WNIDS = ["n00000001", "n00000002", "n00000003", "n00000004"]
HALF_IMAGES, HALF_CLASSES = "imagenet_subsets/imagenet_half_images", "imagenet_subsets/imagenet_half_classes"


def png(red, green=0, grey=False):
    """An image of one colour, which says what it is through any resizing."""
    out = io.BytesIO()
    image = Image.new("RGB", (9, 12), (red, green, 7))
    (image.convert("L") if grey else image).save(out, "PNG")
    return out.getvalue()


def write_train(root, per_class=30, inner=""):
    for label, wnid in enumerate(WNIDS):
        folder = root / wnid / inner
        folder.mkdir(parents=True)
        for number in range(per_class):
            (folder / f"{wnid}_{number}.JPEG").write_bytes(png(label, number))


def options(root, **more):
    return {"path": str(root), "image_size": 8, **more}


def everything(split):
    batch = split.read(np.arange(split.num_examples), None)
    return batch["inputs"][:, 0, 0], batch["labels"]


def test_the_layout_of_imagenet_is_read_with_labels_by_the_order_of_the_names(tmp_path):
    write_train(tmp_path / "train")
    for label, wnid in enumerate(WNIDS):
        (tmp_path / "val" / wnid).mkdir(parents=True)
        (tmp_path / "val" / wnid / "v.JPEG").write_bytes(png(label))
    dataset = load_dataset("imagenet", options(tmp_path), None)
    counts = {name: split.num_examples for name, split in dataset.splits.items()}
    assert counts == {"train": 115, "val": 4, "test": 5}  # 120 · 50,045 / 1,281,167 = 4.7
    assert dataset.num_outputs == 4
    for split in dataset.splits.values():
        pixels, labels = everything(split)
        assert np.array_equal(pixels[:, 0], labels)


def test_no_image_is_in_two_splits_and_none_is_lost(tmp_path):
    write_train(tmp_path / "train")
    splits = load_dataset("imagenet", options(tmp_path), None).splits
    seen = [tuple(pixel[:2].tolist()) for split in splits.values() for pixel in everything(split)[0]]
    assert sorted(seen) == [(label, number) for label in range(4) for number in range(30)]
    assert splits["val"].num_examples == splits["test"].num_examples == 5  # no validation files: split off as well


def test_the_layout_of_tiny_imagenet_is_read(tmp_path):
    write_train(tmp_path / "train", inner="images")
    (tmp_path / "val" / "images").mkdir(parents=True)
    lines = []
    for number in range(8):
        (tmp_path / "val" / "images" / f"val_{number}.JPEG").write_bytes(png(3 - number % 4))
        lines.append(f"val_{number}.JPEG\t{WNIDS[3 - number % 4]}\t0\t0\t1\t1\n")
    (tmp_path / "val" / "val_annotations.txt").write_text("".join(lines))
    pixels, labels = everything(load_dataset("imagenet", options(tmp_path), None).splits["val"])
    assert np.array_equal(pixels[:, 0], labels)
    assert np.bincount(labels).tolist() == [2, 2, 2, 2]


def test_the_layout_of_kaggle_is_read(tmp_path):
    base = tmp_path / "ILSVRC" / "Data" / "CLS-LOC"
    write_train(base / "train")
    (base / "val").mkdir()
    (base / "val" / "ILSVRC2012_val_1.JPEG").write_bytes(png(2))
    (tmp_path / "LOC_val_solution.csv").write_text(f"ImageId,PredictionString\nILSVRC2012_val_1,{WNIDS[2]} 1 2 3 4 \n")
    pixels, labels = everything(load_dataset("imagenet", options(tmp_path), None).splits["val"])
    assert labels.tolist() == [2] == pixels[:, 0].tolist()


def test_half_the_images_and_half_the_classes(tmp_path):
    write_train(tmp_path / "train")
    whole = load_dataset("imagenet", options(tmp_path, test_images=20), None)
    images = load_dataset(HALF_IMAGES, options(tmp_path, test_images=20), None)
    classes = load_dataset(HALF_CLASSES, options(tmp_path, test_images=20), None)
    assert (whole.num_train_examples, images.num_train_examples) == (80, 40)
    assert (images.num_outputs, classes.num_outputs) == (4, 2)
    assert images.splits["test"].num_examples == 20
    for split in ("train", "val", "test"):
        pixels, labels = everything(classes.splits[split])
        assert set(labels.tolist()) == {0, 1}
        first, second = sorted(set(pixels[:, 0].tolist()))
        assert np.array_equal(labels, (pixels[:, 0] == second).astype(int))
        assert first != second
        kept = everything(whole.splits[split])[1]
        assert len(labels) == np.isin(kept, [first, second]).sum()


@pytest.mark.parametrize("name", ["imagenet", HALF_IMAGES, HALF_CLASSES])
def test_info_of_named_files_are_those_of_the_loaded_set(tmp_path, name):
    write_train(tmp_path / "train")
    chosen = options(tmp_path, test_images=20)
    info, dataset = dataset_info(name, chosen), load_dataset(name, chosen, None)
    assert info.num_train_examples == dataset.num_train_examples
    assert info.num_outputs == dataset.num_outputs
    assert info.input_shape == dataset.input_shape


def test_info_without_files_are_the_published_ones():
    assert dataset_info("imagenet", {}).num_train_examples == 1_281_167 - 50_045
    assert dataset_info(HALF_IMAGES, {}).num_train_examples == (1_281_167 - 50_045) // 2
    assert dataset_info(HALF_CLASSES, {}).num_outputs == 500
    assert dataset_info("imagenet", {"image_size": 64}).input_shape == (64, 64, 3)


def test_a_small_folder_is_not_taken_for_imagenet_unless_it_is_named(tmp_path):
    write_train(tmp_path / "imagenet" / "train")
    with pytest.raises(DataError, match=r"none of the places(.|\n)*1,000 classes(.|\n)*option path"):
        load_dataset("imagenet", {}, tmp_path)


def test_parquet_gives_what_the_folder_gives(tmp_path):
    rows = [{"image": {"bytes": png(label, n), "path": None}, "label": label} for label in range(4) for n in range(15)]
    (tmp_path / "data").mkdir()
    pl.DataFrame(rows[:30]).write_parquet(tmp_path / "data" / "train-00000-of-00002.parquet")
    pl.DataFrame(rows[30:]).write_parquet(tmp_path / "data" / "train-00001-of-00002.parquet")
    pl.DataFrame(rows[::15]).write_parquet(tmp_path / "data" / "validation-00000-of-00001.parquet")
    dataset = load_dataset("imagenet", options(tmp_path), None)
    assert {n: s.num_examples for n, s in dataset.splits.items()} == {"train": 58, "val": 4, "test": 2}
    for split in dataset.splits.values():
        pixels, labels = everything(split)
        assert np.array_equal(pixels[:, 0], labels)
    stores = list((tmp_path / "cache" / "batchscale" / "images").iterdir())
    assert len(stores) == 2  # one for each split, no remains of writing
    load_dataset("imagenet", options(tmp_path), None)
    assert sorted((tmp_path / "cache" / "batchscale" / "images").iterdir()) == sorted(stores)


@pytest.mark.parametrize("more", [{"image_column": "photo"}, {"label_column": "class"}])
def test_a_missing_column_is_named(tmp_path, more):
    pl.DataFrame({"image": [png(1)] * 3, "label": [0, 1, 2]}).write_parquet(tmp_path / "train.parquet")
    with pytest.raises(DataError, match=rf"must have a column '{next(iter(more.values()))}'\. Found: image, label"):
        load_dataset("imagenet", options(tmp_path, **more), None)


def test_a_damaged_parquet_file_is_named(tmp_path):
    (tmp_path / "train.parquet").write_bytes(b"PAR1 and rubbish")
    with pytest.raises(DataError, match=r"train\.parquet cannot be read as Parquet"):
        load_dataset("imagenet", options(tmp_path), None)
    assert not list((tmp_path / "cache").rglob("*.bin"))


def test_the_mean_colour_is_subtracted(tmp_path):
    write_train(tmp_path / "train", per_class=3)
    dataset = load_dataset("imagenet", options(tmp_path), None)
    batch = dataset.splits["train"].read(np.arange(2), np.array([4, 5]))
    prepared = dataset.prepare(batch)
    expected = batch["inputs"].astype(np.float64) - np.array(MEAN_RGB)
    assert np.allclose(prepared["inputs"], expected, atol=1e-5)  # float32 rounding below 256
    assert prepared["labels"].dtype == np.int32


def test_reading_is_a_function_of_indices_and_seeds(tmp_path):
    root = tmp_path / "train" / WNIDS[0]
    root.mkdir(parents=True)
    for number in range(30):
        pixels = np.random.RandomState(number).randint(0, 256, (20, 30, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(root / f"{number}.png")
    split = load_dataset("imagenet", options(tmp_path), None).splits["train"]
    indices, seeds = np.array([3, 1, 3]), np.array([10, 11, 12])
    together = split.read(indices, seeds)["inputs"]
    alone = np.concatenate([split.read(indices[i : i + 1], seeds[i : i + 1])["inputs"] for i in range(3)])
    assert np.array_equal(together, alone)
    assert not np.array_equal(together[0], together[2])  # the same image with another seed


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"image_size": 0}, "image_size"),
        ({"image_size": "224"}, "image_size"),
        ({"image_size": 224, "resize_min": 100}, "image_size ≤ resize_min ≤ resize_max"),
        ({"resize_max": 200}, "image_size ≤ resize_min ≤ resize_max"),
        ({"path": "a", "hf": "b"}, "give one of the two"),
        ({"imagesize": 3}, "did you mean 'image_size'"),
    ],
)
def test_impossible_options_are_refused(wrong, message):
    with pytest.raises(SpecError, match=message):
        dataset_info("imagenet", wrong)


def test_without_the_library_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(DataError, match=r"pip install 'batchscale\[hf\]'"):
        load_dataset("imagenet", {"hf": "somebody/something"}, None)


def test_hugging_face_sets_are_read_from_a_folder_and_as_saved_by_the_library(tmp_path, monkeypatch):
    library = pytest.importorskip("datasets")
    if not hasattr(library, "load_dataset"):
        pytest.skip("this 'datasets' is a folder of tests, not the library")
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    for split in ("train", "validation"):
        for label, name in enumerate("ab"):
            (tmp_path / "folder" / split / name).mkdir(parents=True)
            for number in range(10):
                (tmp_path / "folder" / split / name / f"{number}.png").write_bytes(png(label, number))
    library.load_dataset(str(tmp_path / "folder")).save_to_disk(str(tmp_path / "saved"))
    for source in ("folder", "saved"):
        dataset = load_dataset("imagenet", {"hf": str(tmp_path / source), "image_size": 8}, None)
        assert {n: s.num_examples for n, s in dataset.splits.items()} == {"train": 19, "val": 20, "test": 1}
        for split in dataset.splits.values():
            pixels, labels = everything(split)
            assert np.array_equal(pixels[:, 0], labels)


def test_a_class_of_validation_that_training_lacks_is_refused(tmp_path):
    write_train(tmp_path / "train", per_class=2, inner="images")
    (tmp_path / "val" / "images").mkdir(parents=True)
    (tmp_path / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn99999999\t0\n")
    with pytest.raises(DataError, match=r"val_annotations\.txt, line 1: 'n99999999' is no class"):
        load_dataset("imagenet", options(tmp_path), None)


def test_real_tiny_imagenet_slice(real_data):
    dataset = load_dataset("imagenet", {"path": str(real_data("tiny-imagenet-slice")), "image_size": 56}, None)
    assert {n: s.num_examples for n, s in dataset.splits.items()} == {"train": 480, "val": 500, "test": 20}
    assert np.bincount(everything(dataset.splits["val"])[1]).tolist() == [50] * 10


def test_real_imagenet_samples(real_data):
    dataset = load_dataset("imagenet", {"path": str(real_data("imagenet-sample"))}, None)
    assert {n: s.num_examples for n, s in dataset.splits.items()} == {"train": 8, "val": 1, "test": 1}
    assert dataset.splits["train"].read(np.arange(8), np.arange(8))["inputs"].shape == (8, 224, 224, 3)
