"""What workers find in their environment, and what the inline runner gives back."""

import os

import pytest
from study_fakes import fake_setup

from batchscale.errors import RunError
from batchscale.machine import HOST_DEVICES
from batchscale.workers.environment import check_devices, default_workers, single_threaded, worker_environment
from batchscale.workers.inline import InlineRunner


def test_the_inline_runner_computes_on_one_thread_and_gives_the_variables_back(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=x")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = dict(os.environ)
    with InlineRunner(fake_setup()):
        inside = {name: os.environ[name] for name in single_threaded()}
    assert inside == single_threaded("--xla_dump_to=x")
    assert dict(os.environ) == before


def test_they_come_back_also_after_an_error(monkeypatch):
    before = dict(os.environ)
    with pytest.raises(ZeroDivisionError), InlineRunner(fake_setup()):
        raise ZeroDivisionError
    assert dict(os.environ) == before


def test_they_come_back_when_the_engine_cannot_be_loaded():
    setup = fake_setup()
    before = dict(os.environ)
    with pytest.raises(ModuleNotFoundError):
        InlineRunner(type(setup)(setup.experiment, engine="no_such_module:make_engine"))
    assert dict(os.environ) == before


@pytest.mark.parametrize(("num_devices", "groups"), [(1, ["0", "1", "2", "3", "0"]), (2, ["0,1", "2,3", "0,1"])])
def test_each_worker_has_its_own_group_of_accelerators(monkeypatch, num_devices, groups):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    found = [worker_environment(place, num_devices)["CUDA_VISIBLE_DEVICES"] for place in range(len(groups))]
    assert found == groups
    assert default_workers(num_devices) == 4 // num_devices


def test_on_a_processor_a_worker_has_as_many_devices_as_its_trials_are_spread_over(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to=x {HOST_DEVICES}=8")
    assert default_workers(1) == 8
    assert default_workers(2) == 4
    assert f"{HOST_DEVICES}=2" in worker_environment(0, 2)["XLA_FLAGS"].split()
    alone = worker_environment(0, 1)["XLA_FLAGS"].split()
    assert "--xla_dump_to=x" in alone
    assert not any(flag.startswith(HOST_DEVICES) for flag in alone)


def test_more_devices_than_there_are_are_refused_with_both_numbers(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    assert check_devices(None) == 4
    assert check_devices(2, workers=2) == 2
    assert check_devices(1, workers=9) == 1  # workers of one device may share it
    with pytest.raises(RunError, match=r"Found 4 \(accelerators\); 5 asked for"):
        check_devices(5)
    with pytest.raises(RunError, match=r"3 workers of 2 each need 6"):
        check_devices(2, workers=3)
