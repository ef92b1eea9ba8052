"""A cache folder that cannot be written keeps nobody from training."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from batchscale.workloads import cache
from batchscale.workloads.cache import cache_problem, cached, filling

EXPERIMENT = """
goal = "val/loss < 0.05"
batch_sizes = [64]
trials = 2
workload = "noisy_quadratic/quadratic/sgd"
[budget]
steps = 200
[search]
repeats = 0
"""


@pytest.fixture
def blocked(tmp_path, monkeypatch):
    """A cache folder below a file: it can be made by nobody, root included."""
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("BATCHSCALE_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / "tmp" / f"batchscale-cache-{os.getuid()}"


def test_what_cannot_be_kept_in_the_cache_folder_is_kept_for_a_while(blocked):
    assert "BATCHSCALE_CACHE names another folder" in (cache_problem() or "")
    assert cached("xla", "x", grows=True) == blocked / "xla" / "x"
    assert blocked.stat().st_mode & 0o777 == 0o700


def test_a_folder_in_the_way_that_others_can_write_is_refused(blocked):
    blocked.mkdir(mode=0o777)
    blocked.chmod(0o777)
    with pytest.raises(PermissionError, match="this user's alone"):
        cached("xla")


def test_what_is_in_a_cache_that_cannot_be_written_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHSCALE_CACHE", str(tmp_path))
    (tmp_path / "tokens").mkdir()
    assert cache_problem() is None
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert cached("tokens") == tmp_path / "tokens"
    assert cached("images", "new").parts[-2:] == ("images", "new")
    assert not cached("images", "new").is_relative_to(tmp_path)


def test_a_folder_appears_when_its_files_are_durable(tmp_path, monkeypatch):
    target, durable = tmp_path / "images" / "digest", []
    monkeypatch.setattr(cache, "sync_path", lambda path: durable.append((path.name, target.exists())))
    with filling(target) as stage:
        (stage / "content.bin").write_bytes(b"content")
        (stage / "offsets.npy").write_bytes(b"offsets")
    assert sorted(durable[:2]) == [("content.bin", False), ("offsets.npy", False)]
    assert durable[2:] == [(stage.name, False), ("images", True)]
    assert sorted(path.name for path in target.iterdir()) == ["content.bin", "offsets.npy"]


def test_of_two_who_fill_a_folder_the_first_to_end_stays(tmp_path):
    target = tmp_path / "digest"
    with filling(target) as slow:
        (slow / "file").write_text("slow")
        with filling(target) as fast:
            (fast / "file").write_text("fast")
    assert (target / "file").read_text() == "fast"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_that_could_not_be_filled_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="no image"), filling(tmp_path / "digest") as stage:
        (stage / "file").touch()
        raise ValueError("no image")
    assert not list(tmp_path.iterdir())


def test_a_run_without_a_writable_cache_says_so_once_and_goes_on(blocked, tmp_path):
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    words = ["run", str(tmp_path / "experiment.toml"), "--out", str(tmp_path / "out"), "--workers", "1", "--quiet"]
    command = [sys.executable, "-m", "batchscale", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("BATCHSCALE_CACHE") == 1
    assert list(blocked.rglob("*")) != []
    assert len(list(Path(tmp_path / "out").rglob("measurements.csv"))) == 2
