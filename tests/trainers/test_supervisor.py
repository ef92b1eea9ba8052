"""Nothing of a script outlives its worker, whoever dies first, and whatever the script started."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest
from trainer_fakes import SOURCE, environment

from batchscale.errors import TrialFailedError
from batchscale.trainers.folder import TrialFolder
from batchscale.trainers.process import Launch, ScriptProcess
from batchscale.trainers.supervisor import Order

FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
away = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid} {away.pid} end")
time.sleep(600)
"""

WORKER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from batchscale.trainers.folder import TrialFolder
from batchscale.trainers.process import Launch, ScriptProcess
folder = Path(sys.argv[2])
launch = Launch([sys.executable, str(folder / "family.py"), str(folder / "pids")], folder, {}, folder / "log.txt",
                folder / "lock", TrialFolder(folder / "trial", "").acquire(5.0, lambda: False))
script = ScriptProcess(launch)
time.sleep(600)
"""


def make_launch(folder: Path, code: str, *words: str, **rest) -> Launch:
    (folder / "family.py").write_text(textwrap.dedent(code))
    command = [sys.executable, str(folder / "family.py"), *words]
    trial = TrialFolder(folder / "trial", "this trial")
    handle = trial.acquire(5.0, lambda: False)
    return Launch(command, folder, environment(), folder / "log.txt", trial.lock, handle, **rest)


def wait_for_family(folder: Path) -> list[int]:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        words = (folder / "pids").read_text().split() if (folder / "pids").exists() else []
        if words[-1:] == ["end"]:
            return [int(word) for word in words[:-1]]
        time.sleep(0.02)
    raise AssertionError("the family did not start")


def alive(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except psutil.NoSuchProcess:
            continue
    return found


def assert_all_end(pids: list[int]) -> None:
    deadline = time.monotonic() + 10
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert alive(pids) == []


def test_killing_a_script_ends_all_it_started(tmp_path):
    script = ScriptProcess(make_launch(tmp_path, FAMILY, str(tmp_path / "pids")))
    pids = wait_for_family(tmp_path)
    script.kill()
    assert script.poll() == -signal.SIGKILL
    assert alive(pids) == []


def test_a_script_that_ends_leaves_nothing_it_started(tmp_path):
    code = FAMILY.rsplit("time.sleep(600)", 1)[0]
    script = ScriptProcess(make_launch(tmp_path, code, str(tmp_path / "pids")))
    assert script.wait(20) == 0
    assert_all_end(wait_for_family(tmp_path))


@pytest.mark.parametrize("victim", ["worker", "worker and supervisor"])
def test_a_script_does_not_survive_its_worker(tmp_path, victim):
    (tmp_path / "family.py").write_text(FAMILY)
    worker = subprocess.Popen([sys.executable, "-c", WORKER, SOURCE, str(tmp_path)])
    pids = wait_for_family(tmp_path)
    supervisor = psutil.Process(pids[0]).parent()
    assert supervisor is not None
    worker.kill()
    if victim != "worker":
        supervisor.kill()  # at the same moment: then the system ends the script itself, if not what it started
        pids = pids[:1]
    worker.wait()
    assert_all_end([*pids, supervisor.pid])


def test_a_script_whose_supervisor_is_killed_is_found_dead_and_its_group_ended(tmp_path):
    script = ScriptProcess(make_launch(tmp_path, FAMILY, str(tmp_path / "pids")))
    pids = wait_for_family(tmp_path)
    supervisor = psutil.Process(pids[0]).parent()
    assert supervisor is not None
    script.poll()
    supervisor.kill()
    assert script.wait(10) == -signal.SIGKILL
    assert_all_end(pids[:2])
    for pid in alive(pids):  # the one that left the group has nobody to end it any more
        os.kill(pid, signal.SIGKILL)


def test_a_frozen_script_makes_no_progress_until_it_is_thawed(tmp_path):
    code = "import sys, time\nfor i in range(10**6):\n    open(sys.argv[1], 'w').write(str(i)); time.sleep(0.01)\n"
    script = ScriptProcess(make_launch(tmp_path, code, str(tmp_path / "count")))
    while not (tmp_path / "count").exists():
        time.sleep(0.01)
    script.send(Order.FREEZE)
    time.sleep(0.2)
    before = (tmp_path / "count").read_text()
    time.sleep(0.2)
    assert (tmp_path / "count").read_text() == before
    script.send(Order.THAW)
    deadline = time.monotonic() + 10
    while (tmp_path / "count").read_text() == before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (tmp_path / "count").read_text() != before
    script.kill()


def test_sigterm_reaches_a_script_and_its_exit_code_comes_back(tmp_path):
    code = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nprint('up', flush=True)\n"
    script = ScriptProcess(make_launch(tmp_path, code + "time.sleep(600)\n"))
    while "up" not in (tmp_path / "log.txt").read_text():
        time.sleep(0.01)
    script.send(Order.TERMINATE)
    assert script.wait(10) == 7


def test_two_processes_never_train_the_same_trial(tmp_path):
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)\ntime.sleep(600)"
    )
    launch = make_launch(tmp_path, deaf)  # it does not leave for the one that waits
    first = ScriptProcess(launch)
    while "deaf" not in ((tmp_path / "log.txt").read_text() if (tmp_path / "log.txt").exists() else ""):
        time.sleep(0.05)
    os.close(launch.lock_handle)
    trial = TrialFolder(tmp_path / "trial", "this trial")
    with pytest.raises(TrialFailedError, match="another process is training this trial"):
        trial.acquire(0.2, lambda: False)
    assert trial.acquire(60, lambda: True) is None
    assert first.poll() is None
    first.kill()
    os.close(trial.acquire(0.2, lambda: False))
