"""A worker on another machine verifies versions, the user's own file, the data and the program before its first job."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from study_fakes import fake_experiment

from batchscale import __version__
from batchscale.errors import RunError
from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.trainer import TrainerSpec
from batchscale.spec.workload_name import WorkloadName
from batchscale.workers.remote_setup import RemoteSetup, make_absolute, make_remote_setup, verify_environment
from batchscale.workers.runner import Setup


def setup_with(**changes) -> Setup:
    workload = WorkloadSpec(WorkloadName("noisy_quadratic", "model", "sgd"))
    return Setup(fake_experiment(**({"workload": workload} | changes)))


def own_setup(path: Path) -> Setup:
    return setup_with(workload=WorkloadSpec(WorkloadName("own", "net", "sgd"), file=path))


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "here" / "own.py"
    path.parent.mkdir()
    path.write_text("# the user's own\n")
    return path


def test_the_same_machine_is_a_good_place(tmp_path):
    setup = setup_with()
    assert verify_environment(setup, make_remote_setup(setup.experiment), tmp_path) == setup
    assert list(tmp_path.iterdir()) == []


def test_another_version_is_refused_with_both_and_the_node(tmp_path):
    remote = replace(make_remote_setup(setup_with().experiment), versions={"batchscale": "9.9", "jax": "0.0.1"})
    with pytest.raises(RunError, match=rf"Node n7 cannot .* batchscale {__version__} instead of 9\.9, jax .* 0\.0\.1"):
        verify_environment(setup_with(), remote, tmp_path, node="n7")


def test_a_script_may_have_any_version_of_jax():
    trainer = TrainerSpec(("python3", "-c", "pass"))
    assert set(make_remote_setup(fake_experiment(trainer=trainer)).versions) == {"batchscale"}
    assert set(make_remote_setup(fake_experiment()).versions) == {"batchscale", "jax", "jaxlib"}


def test_the_users_own_file_is_used_in_its_place_where_it_is_the_same(own, tmp_path):
    setup = own_setup(own)
    assert verify_environment(setup, make_remote_setup(setup.experiment), tmp_path / "private") == setup
    assert not (tmp_path / "private").exists()


@pytest.mark.parametrize("there", ["nothing", "another"])
def test_elsewhere_it_is_written_to_a_private_place_as_the_driver_read_it(own, tmp_path, there):
    setup = own_setup(own)
    remote = make_remote_setup(setup.experiment)
    digest = hashlib.sha256(own.read_bytes()).hexdigest()
    assert remote.own_file.sha256 == digest
    own.unlink() if there == "nothing" else own.write_text("# edited since\n")
    for _ in range(2):  # a second worker of the node finds it there
        found = verify_environment(setup, remote, tmp_path / "private").experiment.workload.file
        assert found.name == "own.py"
        assert hashlib.sha256(found.read_bytes()).hexdigest() == digest
        assert found.parent.parent == tmp_path / "private"
        assert found.parent.stat().st_mode & 0o777 == 0o700
        assert [path.name for path in found.parent.iterdir()] == ["own.py"]


def test_a_file_that_changed_on_its_way_is_refused(own, tmp_path):
    setup = own_setup(own)
    remote = make_remote_setup(setup.experiment)
    own.unlink()
    for damaged in (replace(remote.own_file, text="x"), replace(remote.own_file, name="../own.py")):
        with pytest.raises(RunError, match="damaged on its way"):
            verify_environment(setup, RemoteSetup(remote.versions, damaged), tmp_path / "private")
    assert list(tmp_path.rglob("own.py")) == []


def test_a_file_that_cannot_be_sent_is_refused_by_the_driver(own):
    own.write_bytes(b"\xff\xfe")
    with pytest.raises(RunError, match="UTF-8"):
        make_remote_setup(own_setup(own).experiment)


def test_missing_data_is_an_error_with_the_node_and_what_to_do(tmp_path, monkeypatch):
    for name in ("BATCHSCALE_DATA", "BATCHSCALE_CACHE", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    monkeypatch.setattr("batchscale.workloads.datasets.files.locations.SYSTEM_FOLDER", tmp_path / "nothing")
    setup = setup_with(workload=WorkloadSpec(WorkloadName("mnist", "fc_64", "sgd")))
    setup = replace(setup, data_dir=tmp_path / "shared")
    with pytest.raises(RunError, match=r"Node n7 .* data set 'mnist' must be on every machine .*shared or where"):
        verify_environment(setup, make_remote_setup(setup.experiment), tmp_path, node="n7")


def test_a_missing_program_is_an_error_with_the_node(tmp_path):
    setup = setup_with(trainer=TrainerSpec(("no-such-program",), tmp_path))
    with pytest.raises(RunError, match=r"Node n7 .*no-such-program"):
        verify_environment(setup, make_remote_setup(setup.experiment), tmp_path, node="n7")


def test_paths_of_a_setup_mean_the_same_in_any_folder(own, monkeypatch):
    monkeypatch.chdir(own.parent)
    found = make_absolute(replace(own_setup(Path("own.py")), data_dir=Path("data")))
    assert found.experiment.workload.file == own
    assert found.data_dir == own.parent / "data"
