import pytest

from batchscale.errors import DataError
from batchscale.workloads.cache import cache_folder
from batchscale.workloads.datasets.builtin.mnist import FASHION_FILES, MNIST_FILES
from batchscale.workloads.datasets.declaration import load_dataset
from batchscale.workloads.datasets.files import locations
from batchscale.workloads.datasets.files.locations import default_data_dir, find_dataset, find_files, list_datasets
from batchscale.workloads.datasets.files.official import DatasetFiles, Origin


def is_there(folder):
    return (folder / "file").exists()


def test_places_are_searched_in_the_documented_order(tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHSCALE_DATA", str(tmp_path / "variable"))
    monkeypatch.setenv("BATCHSCALE_CACHE", str(tmp_path / "named_cache"))
    monkeypatch.setattr(locations, "SYSTEM_FOLDER", tmp_path / "system")
    letters = DatasetFiles(Origin("letters", (), "", "find them"), is_there, "letters-package")
    places = [
        tmp_path / "given" / "letters",
        tmp_path / "given",
        tmp_path / "variable" / "letters",
        tmp_path / "variable",
        tmp_path / "named_cache" / "data" / "letters",
        tmp_path / "cache" / "batchscale" / "data" / "letters",
        tmp_path / "system" / "letters-package",
    ]
    assert find_files(letters, tmp_path / "given") is None
    for place in reversed(places):
        place.mkdir(parents=True, exist_ok=True)
        (place / "file").touch()
        assert find_files(letters, tmp_path / "given") == place


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
    with_files = {name: one for name, one in sets.items() if one.needs_files}
    assert {"mnist", "cifar_10", "imagenet", "lm1b"} <= set(with_files)
    assert all(one.path is None and one.how for one in with_files.values())


def test_fashion_mnist_is_never_taken_for_mnist(real_data):
    folder = real_data("fashion_mnist")
    assert FASHION_FILES.are_in(folder)
    assert not MNIST_FILES.are_in(folder)
    assert MNIST_FILES.are_in(real_data("mnist"))
    assert not FASHION_FILES.are_in(real_data("mnist"))


def test_a_subset_lies_where_the_whole_set_lies(tmp_path, idx_files):
    idx_files.write_mnist(tmp_path / "mnist")
    assert find_dataset("mnist_subsets/mnist_6875", tmp_path).path == tmp_path / "mnist"
    assert MNIST_FILES.are_in(tmp_path / "mnist")


@pytest.mark.parametrize("options", [{"path": "my/images"}, {"hf": "somebody/images"}])
def test_files_that_the_options_name_are_not_searched_for(tmp_path, options):
    assert not find_dataset("imagenet", tmp_path, options).needs_files
    assert find_dataset("imagenet", tmp_path, {"image_size": 64}).needs_files
