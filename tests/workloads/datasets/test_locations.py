from functools import partial

import pytest

from batchscale.errors import DataError
from batchscale.workloads.datasets import load_dataset
from batchscale.workloads.datasets.files import locations
from batchscale.workloads.datasets.files.locations import cache_folder, default_data_dir, find_data
from batchscale.workloads.datasets.images.mnist_files import has_mnist_files
from batchscale.workloads.datasets.presence import find_dataset, list_datasets


def is_there(folder):
    return (folder / "file").exists()


def test_places_are_searched_in_the_documented_order(tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHSCALE_DATA", str(tmp_path / "variable"))
    monkeypatch.setattr(locations, "_SYSTEM_FOLDERS", {"letters": tmp_path / "system"})
    places = [
        tmp_path / "given" / "letters",
        tmp_path / "given",
        tmp_path / "variable" / "letters",
        tmp_path / "variable",
        tmp_path / "cache" / "batchscale" / "data" / "letters",
        tmp_path / "system",
    ]
    assert find_data("letters", is_there, tmp_path / "given") is None
    for place in reversed(places):
        place.mkdir(parents=True, exist_ok=True)
        (place / "file").touch()
        assert find_data("letters", is_there, tmp_path / "given") == place


def test_the_cache_follows_xdg_only_when_it_is_an_absolute_path(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "batchscale"
    assert default_data_dir() == tmp_path / ".cache" / "batchscale" / "data"
    monkeypatch.setenv("BATCHSCALE_DATA", "~/sets")
    assert default_data_dir() == tmp_path / "sets"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("mnist_subsets/mnist_6875", "Run `batchscale data get mnist`"),
        ("fashion_mnist", "dataset-fashion-mnist"),
        ("cifar_10", "Run `batchscale data get cifar_10`"),
        ("imagenet", "`batchscale data get imagenet --from FOLDER`"),
        ("imagenet_subsets/imagenet_half_images", "`batchscale data get imagenet --from FOLDER`"),
        ("open_images_v4", "`batchscale data get open_images_v4 --from FOLDER`"),
        ("lm1b", "Run `batchscale data get lm1b`"),
        ("common_crawl", "`batchscale data get common_crawl --from FOLDER`"),
        ("ptb", "Run `batchscale data get ptb`"),
    ],
)
def test_a_missing_set_says_what_to_run_and_where_was_searched(tmp_path, name, command):
    with pytest.raises(DataError) as caught:
        load_dataset(name, {}, tmp_path / "here")
    assert command in str(caught.value)
    assert str(tmp_path / "here") in str(caught.value)
    assert "--from PATH" in str(caught.value)


def test_every_set_is_listed_and_missing_ones_say_how(tmp_path):
    sets = {one.name: one for one in list_datasets(tmp_path)}
    assert not sets["digits"].needs_files
    assert all(one.path is None and one.how for one in sets.values() if one.needs_files)


def test_fashion_mnist_is_never_taken_for_mnist(real_data):
    folder = real_data("fashion_mnist")
    assert has_mnist_files(folder, "fashion_mnist")
    assert not has_mnist_files(folder, "mnist")
    assert has_mnist_files(real_data("mnist"), "mnist")
    assert not has_mnist_files(real_data("mnist"), "fashion_mnist")


def test_a_subset_lies_where_the_whole_set_lies(tmp_path, idx_files):
    idx_files.write_mnist(tmp_path / "mnist")
    assert find_dataset("mnist_subsets/mnist_6875", tmp_path).path == tmp_path / "mnist"
    assert partial(has_mnist_files, name="mnist")(tmp_path / "mnist")


@pytest.mark.parametrize("options", [{"path": "my/pictures"}, {"hf": "somebody/pictures"}])
def test_files_that_the_options_name_are_not_searched_for(tmp_path, options):
    assert not find_dataset("imagenet", tmp_path, options).needs_files
    assert find_dataset("imagenet", tmp_path, {"image_size": 64}).needs_files
