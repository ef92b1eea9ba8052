"""A machine that trains without the data: it takes it from where the driver says, or names itself and what to do."""

import io
import tarfile
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from protocol_fakes import fake_experiment

from batchscale.errors import RunError
from batchscale.records.remote_store import RemoteStore
from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.workload_name import WorkloadName
from batchscale.workers import node_data
from batchscale.workers.remote_setup import arrive, make_remote_setup
from batchscale.workers.runner import Setup
from batchscale.workloads.datasets.files.origin import DatasetFiles, Origin
from batchscale.workloads.datasets.presence import Presence

FILES = DatasetFiles(Origin("mnist", (), "", "get it by hand"), lambda folder: (folder / "images").is_file())


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine without data; its place for data."""
    place = tmp_path / "node" / "data"
    monkeypatch.setenv("BATCHSCALE_DATA", str(place))
    for name in ("BATCHSCALE_CACHE", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    monkeypatch.setattr(node_data, "files_of", lambda _name: FILES)
    monkeypatch.setattr("batchscale.workers.remote_setup.find_dataset", find)
    return place


def find(name, data_dir, _options):
    return Presence(name, node_data.find_files(FILES, data_dir), needs_files=True, how="get it by hand", terms="")


def go(source: str | None, private: Path) -> Setup:
    workload = WorkloadSpec(WorkloadName("mnist", "fc_64", "sgd"))
    setup = Setup(fake_experiment(workload=workload))
    luggage = replace(make_remote_setup(setup.experiment), data_from=source)
    return arrive(setup, luggage, private, node="n7")


def make_archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("mnist/images")
        member.size = 3
        archive.addfile(member, io.BytesIO(b"abc"))
    return buffer.getvalue()


def make_source(kind: str, folder: Path) -> str:
    if kind == "folder":
        (folder / "shared").mkdir()
        (folder / "shared" / "images").write_bytes(b"abc")
        return str(folder / "shared")
    if kind == "archive":
        (folder / "mnist.tar.gz").write_bytes(make_archive())
        return str(folder / "mnist.tar.gz")
    url = f"memory://data-{uuid4().hex}"
    RemoteStore(url).put("mnist.tar.gz", make_archive())
    return f"{url}/mnist.tar.gz"


@pytest.mark.parametrize("kind", ["folder", "archive", "remote archive"])
def test_data_is_taken_from_the_place_that_the_driver_names(bare, tmp_path, kind):
    source = make_source(kind, tmp_path)
    go(source, tmp_path)
    assert (bare / "mnist" / "images").read_bytes() == b"abc"
    go("/no/such/place", tmp_path)  # a second worker of the machine finds it there
    assert {path.name for path in bare.iterdir() if not path.name.startswith(".")} == {"mnist"}


@pytest.mark.parametrize("source", [None, "/no/such/place", "memory://nothing/mnist.tar.gz", "memory://nothing/"])
def test_without_it_one_message_names_the_node_the_set_and_what_was_tried(bare, tmp_path, source):
    with pytest.raises(RunError, match=r"^Node n7 cannot train .* data set 'mnist' must .* get it by hand") as caught:
        go(source, tmp_path)
    assert ("could not be taken from" in str(caught.value)) == (source is not None)
    assert source is None or source in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_place_that_cannot_be_written_is_said(bare, tmp_path):
    bare.parent.mkdir(parents=True)
    bare.write_text("a file where a folder should be")
    with pytest.raises(RunError, match=rf"Data is kept in {bare}, which must take it"):
        go(make_source("folder", tmp_path), tmp_path)
