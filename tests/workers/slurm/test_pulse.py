"""The driver's pulse: alive while it grows, dead when it stands still or is gone."""

import time

from batchscale.workers.slurm.pulse import Pulse, PulseWatch


def test_a_pulse_is_alive_as_long_as_it_beats_and_ends_at_once(tmp_path):
    pulse = Pulse(tmp_path / "pulse", every_s=0.02)
    watch = PulseWatch(tmp_path / "pulse", patience_s=5.0)
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        assert watch.is_alive()
    assert (tmp_path / "pulse").stat().st_size > 0
    pulse.end()
    assert not watch.is_alive()
    time.sleep(0.1)
    assert not (tmp_path / "pulse").exists()  # a beat under way does not bring it back
    pulse.end()


def test_it_beats_for_as_long_as_it_likes_in_a_small_file(tmp_path, monkeypatch):
    monkeypatch.setattr("batchscale.workers.slurm.pulse.MAX_BYTES", 5)
    pulse = Pulse(tmp_path / "pulse", every_s=0.005)
    sizes, until = set(), time.monotonic() + 5
    while sizes != {1, 2, 3, 4, 5} and time.monotonic() < until:
        sizes.add((tmp_path / "pulse").stat().st_size)
    pulse.end()
    assert sizes == {1, 2, 3, 4, 5}


def test_one_that_stands_still_is_dead_when_patience_ends(tmp_path):
    path = tmp_path / "pulse"
    path.write_bytes(b"...")
    watch = PulseWatch(path, patience_s=0.1)
    started = time.monotonic()
    assert watch.is_alive()
    while watch.is_alive():
        time.sleep(0.01)
    assert 0.1 <= time.monotonic() - started < 5
    path.write_bytes(b"....")
    assert watch.is_alive()


def test_a_file_that_cannot_be_read_for_a_moment_is_no_death(tmp_path):
    path = tmp_path / "pulse"
    path.write_bytes(b".")
    watch = PulseWatch(path, patience_s=5.0)
    path.unlink()
    path.mkdir()  # to open it is an error that is not absence
    assert watch.is_alive()
