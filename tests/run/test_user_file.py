"""A user's own file is loaded and probed in a process of its own: whatever it does, batchscale says what it was."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from batchscale.errors import REQUEUE, SpecError
from batchscale.run.preflight import make_checked_plan
from batchscale.run.user_file import load_user_file
from batchscale.spec.file import read_experiment

GOOD = """
import numpy as np
import batchscale

def split(seed):
    random = np.random.default_rng(seed)
    return {"inputs": random.normal(size=(40, 3)), "labels": np.arange(40) % 2}

def init(key):
    return {"w": np.zeros((3, 2), np.float32)}

def apply(params, inputs):
    return inputs @ params["w"]

batchscale.register_workload(
    "mine/net", data={"train": split(0), "val": split(1)}, model=(init, apply), task="classification"
)
"""
EXPERIMENT = """
goal = "val/classification_error < 0.1"
batch_sizes = [4, "full"]
trials = 2
[workload]
dataset = "mine"
model = "net"
optimizer = "momentum"
schedule = "linear"
file = "mine.py"
file_timeout_s = {timeout_s}
[budget]
epochs = 2
"""
LAST_WORDS = "import sys\nprint('some last words', flush=True)\n"
HANG = "import time\ntime.sleep(1000)\n"
IN_A_CALL = "    return inputs @ params"


def write(folder: Path, code: str, timeout_s: float = 100) -> Path:
    (folder / "mine.py").write_text(code)
    file = folder / "experiment.toml"
    file.write_text(EXPERIMENT.format(timeout_s=timeout_s))
    return file


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    """The plan of a good file, and a limit that is short here and now for one that hangs where this one was done."""
    began = time.monotonic()
    plan = make_checked_plan(read_experiment(write(tmp_path_factory.mktemp("good"), GOOD)), None)
    return plan, math.ceil(3 + 2 * (time.monotonic() - began))


def test_a_good_file_gives_the_plan_that_it_gives_in_this_process(probed):
    plan, _ = probed
    assert [(study.batch_size, study.train_steps) for study in plan.studies] == [(4, 20), (40, 2)]
    assert plan.studies[0].space["learning_rate_decay_steps"].max_value == 20
    assert plan.studies[1].space["learning_rate_decay_steps"].max_value == 2
    assert "batchscale_user_mine" not in sys.modules


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (LAST_WORDS + "sys.exit(7)", r"mine\.py fails at line 3: SystemExit: 7"),
        (LAST_WORDS + "import os\nos._exit(7)", r"exited with code 7\. Fix it\.\nIts last lines:\nsome last words"),
        (LAST_WORDS + "import ctypes\nctypes.string_at(0)", r"killed by signal SIGSEGV(.|\n)*some last words"),
        (LAST_WORDS + "import os\nos.kill(os.getpid(), 9)", "killed by signal SIGKILL"),
        (GOOD.replace(IN_A_CALL, "    import sys; sys.exit(3)\n" + IN_A_CALL), "the model fails on .*SystemExit: 3"),
        (GOOD.replace(IN_A_CALL, "    import os; os.abort()\n" + IN_A_CALL), "killed by signal SIGABRT"),
        ("raise KeyboardInterrupt", "killed by signal SIGINT"),
        ("x = 1", "does not register the workload 'mine/net'"),
    ],
    ids=["exit", "_exit", "crash", "kill", "exit in a call", "abort in a call", "interrupt", "nothing"],
)  # fmt: skip
def test_what_a_file_does_to_its_process_is_said_with_its_last_lines(tmp_path, code, message):
    with pytest.raises(SpecError, match=message) as caught:
        load_user_file(read_experiment(write(tmp_path, code)), None)
    assert "mine.py" in str(caught.value) or "mine/net" in str(caught.value)


@pytest.mark.parametrize(
    "code",
    [LAST_WORDS + HANG, GOOD.replace(IN_A_CALL, f"    {LAST_WORDS.splitlines()[1]}; import time; time.sleep(1000)\n")],
    ids=["at import", "in a call"],
)
def test_a_file_that_hangs_is_killed_at_its_time_limit(tmp_path, code, probed):
    _, limit_s = probed
    code = (
        "import os\nopen('pid', 'w').write(str(os.getpid()))\nif os.fork() == 0: __import__('time').sleep(1000)\n"
        + code
    )
    code = code.replace("'pid'", repr(str(tmp_path / "pid")))
    with pytest.raises(SpecError, match=rf"still running after {limit_s} s(.|\n)*file_timeout_s(.|\n)*some last words"):
        load_user_file(read_experiment(write(tmp_path, code, timeout_s=limit_s)), None)
    group = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 10  # a killed process takes a moment to be gone
    while (left := [one for one in psutil.process_iter() if is_running_in(one, group)]) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left


def is_running_in(process: psutil.Process, group: int) -> bool:
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False


def start(folder: Path, *words: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "batchscale", *words]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, REQUEUE), (signal.SIGTERM, REQUEUE)])
def test_a_signal_ends_a_run_whose_file_hangs(tmp_path, number, code):
    write(tmp_path, f"open({str(tmp_path / 'begun')!r}, 'w').close()\n" + HANG)
    process = start(tmp_path, "run", "experiment.toml", "--out", "out")
    while not (tmp_path / "begun").exists():
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert not (tmp_path / "out").exists()


def test_threads_of_a_file_that_never_end_keep_no_command(tmp_path):
    write(tmp_path, "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()\n" + GOOD)
    process = start(tmp_path, "validate", "experiment.toml")
    assert process.wait(timeout=60) == 0
    process.communicate()
    words = ["--batch-size", "4", "--steps", "2", "--set", "learning_rate=0.1", "--set", "momentum=0.9"]
    more = ["--set", "learning_rate_decay_steps=2", "--set", "end_learning_rate_factor=0.1"]
    process = start(tmp_path, "train", "experiment.toml", *words, *more)
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    assert "step budget" in output


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found by their environment on Linux")
def test_a_process_in_a_session_of_its_own_ends_with_the_check(tmp_path):
    pid_file = tmp_path / "pid"
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'], start_new_session=True)\n"
        f"open({str(pid_file)!r}, 'w').write(str(child.pid))\n"
    )
    load_user_file(read_experiment(write(tmp_path, code + GOOD)), None)
    pid, until = int(pid_file.read_text()), time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.1)
    assert not is_alive(pid)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
