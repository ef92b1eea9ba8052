import gzip
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import DataError, SpecError, UnknownNameError
from batchscale.workloads.datasets.declaration import dataset_names
from batchscale.workloads.datasets.files.locations import find_dataset


@pytest.fixture(autouse=True)
def empty_machine(monkeypatch, tmp_path):
    monkeypatch.delenv("BATCHSCALE_DATA", raising=False)
    monkeypatch.delenv("BATCHSCALE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("batchscale.workloads.datasets.files.locations.SYSTEM_FOLDER", tmp_path / "no_packages")


def run(*arguments):
    return CliRunner().invoke(make_app(), [str(argument) for argument in arguments], catch_exceptions=True)


def test_list_names_every_set_with_its_place_or_what_to_run():
    result = run("data", "list")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == list(dataset_names())
    assert "run `batchscale data get mnist`" in result.stdout


def test_list_as_json_says_what_is_present():
    entries = {entry["name"]: entry for entry in json.loads(run("data", "list", "--json").stdout)["datasets"]}
    assert entries["digits"] == {
        "name": "digits",
        "present": True,
        "path": None,
        "how": "comes with batchscale",
        "terms": None,
    }
    assert entries["cifar_10"]["present"] is False
    assert entries["mnist"]["how"] == "run `batchscale data get mnist`"
    assert entries["cifar_10"]["how"] == (
        "run `batchscale data get cifar_10`, which gets the binary version (cifar-10-binary.tar.gz); "
        "the Python version, which is pickled, is not read"
    )


def test_get_from_takes_files_and_prints_where_they_are(tmp_path):
    folder = tmp_path / "mine" / "text"
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("One sentence.\n")
    result = run("data", "get", "common_crawl", "--from", folder, "--data-dir", tmp_path / "data")
    assert result.stdout.strip() == str(tmp_path / "data" / "common_crawl")
    assert "Not verified" in result.stderr
    listed = json.loads(run("data", "list", "--data-dir", tmp_path / "data", "--json").stdout)["datasets"]
    assert {"common_crawl": True}.items() <= {entry["name"]: entry["present"] for entry in listed}.items()


def test_get_refuses_what_it_cannot_do(tmp_path):
    assert isinstance(run("data", "get", "mnits").exception, UnknownNameError)
    assert "nothing to get" in str(run("data", "get", "digits").exception)
    assert isinstance(run("data", "get", "imagenet").exception, DataError)
    assert isinstance(run("data", "get", "mnist", "--from", tmp_path, "--url", "http://x/").exception, SpecError)
    assert isinstance(run("data", "get", "mnist", "--stall", "0").exception, SpecError)


def test_a_users_mistake_is_one_paragraph_and_exit_code_2(tmp_path):
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"wrong"))
    command = [sys.executable, "-c", "from batchscale.cli.app import main; main()", "data", "get", "mnist"]
    done = subprocess.run(
        [*command, "--from", tmp_path, "--data-dir", tmp_path / "data"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Missing: train-labels-idx1-ubyte" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data" / "mnist").exists()


def test_ten_images_are_not_imagenet(tmp_path):
    for number in range(10):
        folder = tmp_path / "few" / "train" / f"n0000000{number}"
        folder.mkdir(parents=True)
        (folder / "image.JPEG").write_bytes(b"\xff\xd8")
    result = run("data", "get", "imagenet", "--from", str(tmp_path / "few"), "--data-dir", str(tmp_path / "data"))
    assert isinstance(result.exception, DataError)
    assert "1,000 classes" in str(result.exception) and "option path" in str(result.exception)
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data" / "imagenet").symlink_to(tmp_path / "few")
    assert find_dataset("imagenet", tmp_path / "data").path is None
