"""The driver's heartbeat: alive while it grows, dead when it stands still or is gone."""

import time

from batchscale.workers.slurm.heartbeat import Heartbeat, HeartbeatMonitor


def test_a_heartbeat_is_alive_as_long_as_it_beats_and_ends_at_once(tmp_path):
    heartbeat = Heartbeat(tmp_path / "pulse", interval_s=0.02)
    monitor = HeartbeatMonitor(tmp_path / "pulse", timeout_s=5.0)
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        assert monitor.is_alive()
    assert (tmp_path / "pulse").stat().st_size > 0
    heartbeat.end()
    assert not monitor.is_alive()
    time.sleep(0.1)
    assert not (tmp_path / "pulse").exists()  # a beat under way does not bring it back
    heartbeat.end()


def test_it_beats_for_as_long_as_it_likes_in_a_small_file(tmp_path, monkeypatch):
    monkeypatch.setattr("batchscale.workers.slurm.heartbeat.MAX_BYTES", 5)
    heartbeat = Heartbeat(tmp_path / "pulse", interval_s=0.005)
    sizes, until = set(), time.monotonic() + 5
    while sizes != {1, 2, 3, 4, 5} and time.monotonic() < until:
        sizes.add((tmp_path / "pulse").stat().st_size)
    heartbeat.end()
    assert sizes == {1, 2, 3, 4, 5}


def test_one_that_stands_still_is_dead_after_the_timeout(tmp_path):
    path = tmp_path / "pulse"
    path.write_bytes(b"...")
    monitor = HeartbeatMonitor(path, timeout_s=0.1)
    started = time.monotonic()
    assert monitor.is_alive()
    while monitor.is_alive():
        time.sleep(0.01)
    assert 0.1 <= time.monotonic() - started < 5
    path.write_bytes(b"....")
    assert monitor.is_alive()


def test_a_file_that_cannot_be_read_for_a_moment_is_no_death(tmp_path):
    path = tmp_path / "pulse"
    path.write_bytes(b".")
    monitor = HeartbeatMonitor(path, timeout_s=5.0)
    path.unlink()
    path.mkdir()  # to open it is an error that is not absence
    assert monitor.is_alive()
