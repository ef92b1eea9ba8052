"""What a worker may use, on the bare machine and in a container."""

import os

import psutil
import pytest

from batchscale import machine
from batchscale.workers.environment import memory_limit


@pytest.fixture
def group(tmp_path, monkeypatch):
    """The folder of our control group, two levels below the top."""
    inner = tmp_path / "groups" / "pod" / "box"
    inner.mkdir(parents=True)
    (tmp_path / "own").write_text("5:memory:/elsewhere\n0::/pod/box\n")
    monkeypatch.setattr(machine, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "OWN_GROUP", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(64)), raising=False)
    return inner


@pytest.mark.parametrize(
    ("inner", "outer", "cores"),
    [
        ("max 100000", "max 100000", 64),
        ("400000 100000", "max 100000", 4),
        ("max 100000", "150000 100000", 2),
        ("800000 100000", "50000 100000", 1),
        ("damaged", "", 64),
    ],
)
def test_a_container_gets_as_many_workers_as_its_share_of_processors(group, inner, outer, cores):
    (group / "cpu.max").write_text(inner + "\n")
    (group.parent / "cpu.max").write_text(outer + "\n")
    assert machine.count_cores() == cores


def test_a_container_has_its_own_memory(group):
    total = psutil.virtual_memory().total
    assert machine.count_memory_bytes() == total
    (group / "memory.max").write_text("max\n")
    (group.parent / "memory.max").write_text("1000000000\n")
    assert machine.count_memory_bytes() == 1_000_000_000
    assert memory_limit(2) == 400_000_000
    (group / "memory.max").write_text(f"{10 * total}\n")
    (group.parent / "memory.max").unlink()
    assert machine.count_memory_bytes() == total


def test_kills_for_want_of_memory_are_those_of_our_own_group(group):
    assert machine.count_oom_kills() == 0
    (group / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    (group.parent / "memory.events").write_text("oom_kill 7\n")
    assert machine.count_oom_kills() == 2


@pytest.mark.parametrize("text", [None, "5:memory:/elsewhere\n", "0::/no/such/group\n"])
def test_a_machine_that_says_nothing_has_no_limits(group, text):
    if text is None:
        machine.OWN_GROUP.unlink()
    else:
        machine.OWN_GROUP.write_text(text)
    assert machine.count_cores() == 64
    assert machine.count_oom_kills() == 0
    assert machine.count_memory_bytes() == psutil.virtual_memory().total
