import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from records_fakes import make_rows, make_study, make_trial

from batchscale.errors import StudyLockedError
from batchscale.records.check.tree import check_tree
from batchscale.records.tree.open_study import open_study

HERE = Path(__file__).parent


def kill_writers(root, count, seed):
    done = subprocess.run(
        [sys.executable, HERE / "writer_under_kill.py", root, str(count), str(seed)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{count} kills")
    assert int(done.stdout.split()[2]) >= count // 2  # every second writer lives until it has committed a trial
    assert check_tree(root) == []


def test_kills_at_random_moments_lose_no_finished_trial_and_leave_nothing_wrong(tmp_path):
    kill_writers(tmp_path, 25, seed=1)


@pytest.mark.slow
@pytest.mark.torture
def test_two_hundred_kills(tmp_path):
    kill_writers(tmp_path, 200, seed=2)


def test_a_stopped_writer_keeps_its_lock_and_a_dead_ones_is_free_at_once(tmp_path):
    other = subprocess.Popen([sys.executable, HERE / "writer_that_waits.py", tmp_path], stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"open\n"
        os.kill(other.pid, signal.SIGSTOP)
        with pytest.raises(StudyLockedError, match=f"process {other.pid}"):
            open_study(tmp_path, make_study())
        os.kill(other.pid, signal.SIGCONT)
        with pytest.raises(StudyLockedError):
            open_study(tmp_path, make_study())
        os.kill(other.pid, signal.SIGSTOP)
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    start = time.perf_counter()
    with open_study(tmp_path, make_study()) as writer:
        assert time.perf_counter() - start < 5
        writer.commit(make_trial(1), make_rows(1, [20]))
    assert check_tree(tmp_path) == []
