"""Runs started from the browser: real driver processes, stopped and continued, and never another's process."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from batchscale.records.tree.layout import RunPaths
from batchscale.run.status import is_running, read_status
from batchscale.web.experiment_check import list_own_files
from batchscale.web.process_record import STARTING_S, process_start
from batchscale.web.processes import ProcessStore
from batchscale.web.refusals import RefusedError
from batchscale.web.runs import WebRuns
from batchscale.web.settings import Limits

pytestmark = pytest.mark.timeout(300)

EXPERIMENT = """goal = "val/loss < 0.05"
batch_sizes = [1, 4, 16, 64]
trials = {trials}
stop = "budget"
workload = "noisy_quadratic/quadratic/sgd"
[budget]
steps = {steps}
[evaluation]
count = 20
[search]
repeats = 0
[search.space]
learning_rate = {{ type = "DOUBLE", scale = "LOG_SCALE", min_value = 0.01, max_value = 1.0 }}
"""


def wait(condition: Callable[[], object], seconds: float = 100) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)


@pytest.mark.usefixtures("full_programs")
def test_a_run_is_started_stopped_and_continued_to_the_end(make_site):
    site = make_site(workers=1)
    client = site.visitor()
    text = EXPERIMENT.format(trials=3, steps=60_000)
    answer = site.post(client, "/new/start", name="mine", toml=text)
    assert answer.status_code == 303, answer.text
    page, path = answer.headers["location"], site.folder / "mine"
    runs = WebRuns(site.settings)  # a second server: what it knows is on disk
    started = runs.find(path)
    assert started is not None
    wait(lambda: runs.find(path).record.pid is not None)
    number = runs.find(path).record.pid
    assert os.getsid(number) == number != os.getsid(0)
    assert site.post(client, "/new/start", name="mine", toml=text).status_code == 409
    wait(lambda: runs.is_ours(path))
    wait(lambda: read_status(path) is not None)
    assert 'id="stop"' in client.get(page).text and 'id="stop"' in client.get(f"{page}/control").text
    assert site.post(client, f"{page}/continue").status_code == 422  # one run writes a folder at a time
    runs.stop(path)
    wait(lambda: not is_running(path))
    wait(lambda: 'id="continue"' in client.get(page).text)
    assert site.post(client, f"{page}/continue", toml=text).status_code == 303
    wait(lambda: runs_of(site).is_ours(path) or _finished(path))
    wait(lambda: _finished(path), 200)
    wait(lambda: not is_running(path))
    wait(lambda: 'id="extend"' in client.get(page).text)
    events = [line for line in (site.settings.state / "audit.jsonl").read_text().splitlines() if "mine" in line]
    assert len(events) >= 2


def runs_of(site) -> WebRuns:
    return WebRuns(site.settings)


def _finished(path: Path) -> bool:
    snapshot = read_status(path)
    return snapshot is not None and snapshot.finished


def test_a_mistake_in_an_own_file_is_told_with_the_words_of_the_command_line(make_site, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    text = EXPERIMENT.format(trials=2, steps=10).replace("noisy_quadratic/quadratic", "no_such_data/fc_64")
    (own / "wrong.toml").write_text(text)
    site = make_site(own_files=own)
    client = site.visitor()
    page = site.post(client, "/new/start", name="wrong", own=next(iter(list_own_files(own)))).headers["location"]
    wait(lambda: "no_such_data" in client.get(page).text.partition("What the run printed last")[2])


@pytest.fixture
def stranger(tmp_path: Path):
    """A process that holds the lock of a folder and is not ours."""
    root = tmp_path / "records" / "theirs"
    lock = RunPaths(root).lock
    lock.parent.mkdir(parents=True)
    code = (
        "import fcntl, os, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); "
        "f.write(str(os.getpid())); f.flush(); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(lock)])
    wait(lambda: lock.exists() and lock.read_text() != "")
    yield root, child
    child.send_signal(signal.SIGKILL)
    child.wait()


def test_a_process_that_is_not_ours_is_never_signalled(make_site, stranger):
    root, child = stranger
    site = make_site()
    runs = WebRuns(site.settings)
    with pytest.raises(RefusedError, match="not started here"):
        runs.stop(root)
    runs.processes.folder.mkdir()
    for pid, began in (
        (child.pid, process_start(os.getpid())),  # the number is used again
        (child.pid, ""),
        (os.getpid(), process_start(os.getpid())),  # not the one that holds the lock
        (None, ""),  # only noted, and long ago
    ):
        write_process(runs, root, pid, began)
        assert not runs.is_ours(root)
        with pytest.raises(RefusedError):
            runs.stop(root)
    assert child.poll() is None
    write_process(runs, root, child.pid, process_start(child.pid))
    runs.stop(root)
    assert child.wait(20) != 0


def write_process(runs: WebRuns, root: Path, pid: int | None, began: str, noted_at: float = 0.0) -> None:
    claim = {"pid": pid, "began": began, "noted_at": noted_at}
    note = {"path": str(root), "file": "x.toml", "is_own_file": False, "claim": claim}
    runs.processes.file(root, "json").write_text(json.dumps(note))


DYING = """
import os, signal, subprocess, sys
from pathlib import Path
from batchscale.web import processes, runs
from batchscale.web.command_sequence import CommandStep
from batchscale.web.settings import WebSettings

class Dying(subprocess.Popen):
    def __init__(self, *words, **named):
        if sys.argv[1] == "after":
            super().__init__(*words, **named)
        os.kill(os.getpid(), signal.SIGKILL)

subprocess.Popen = Dying
folder, state = Path(sys.argv[2]), Path(sys.argv[3])
if sys.argv[4:] == ["job"]:
    processes.ProcessStore(state / "jobs").start(folder, "train", [CommandStep(("--version",), "first")] * 1000)
runs.WebRuns(WebSettings((folder,), state, workers=1)).start_text(folder / "mine", sys.stdin.read())
"""


def start_and_die(site, when: str, *words: str) -> None:
    """A server that is killed right before or right after it started a process."""
    command = [sys.executable, "-c", DYING, when, str(site.folder), str(site.settings.state), *words]
    text = EXPERIMENT.format(trials=50, steps=400_000)
    done = subprocess.run(command, input=text, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL


def test_a_run_whose_server_died_with_its_start_is_counted_and_can_be_stopped(make_site):
    site = make_site(limits=Limits(runs=1), workers=1)
    start_and_die(site, "after")
    path = site.folder / "mine"
    client, runs = site.visitor(), WebRuns(site.settings)
    assert runs.count == 1  # at once, whether it has said who it is or not
    text = EXPERIMENT.format(trials=2, steps=10)
    assert site.post(client, "/new/start", name="more", toml=text).status_code == 429
    assert site.post(client, f"/x/{site.key('mine')}/continue").status_code == 422  # one run writes a folder at a time
    wait(lambda: runs.is_ours(path))
    wait(lambda: read_status(path) is not None)
    assert site.post(client, f"/x/{site.key('mine')}/stop").status_code == 303
    wait(lambda: not is_running(path))
    wait(lambda: runs.count == 0)
    assert "trials = 50" in (runs.text(path) or "")  # and can be continued


def test_a_start_that_never_happened_is_forgotten_after_a_moment(make_site):
    site = make_site(workers=1)
    start_and_die(site, "before")
    path, runs = site.folder / "mine", WebRuns(site.settings)
    assert runs.is_starting(path, 0.0) and runs.count == 1  # it may be just about to say who it is
    assert ">starting</span>" in site.visitor().get(f"/x/{site.key('mine')}").text
    noted = json.loads(runs.processes.file(path, "json").read_bytes())
    noted["claim"]["noted_at"] -= STARTING_S
    runs.processes.file(path, "json").write_text(json.dumps(noted))
    assert not runs.is_starting(path, 0.0) and runs.count == 0 and not is_running(path)
    page = site.visitor().get(f"/x/{site.key('mine')}").text
    assert 'id="continue"' in page and "No trial has ended yet" in page and "Found no readable" not in page


def test_a_job_whose_server_died_with_its_start_can_be_stopped(make_site):
    site = make_site()
    start_and_die(site, "after", "job")
    jobs = ProcessStore(site.settings.state / "jobs")
    assert jobs.is_alive(site.folder) and jobs.count == 1
    wait(lambda: jobs.status(site.folder) is not None)
    jobs.stop(site.folder)
    wait(lambda: not jobs.is_alive(site.folder))
    ended = jobs.status(site.folder)
    assert ended is not None and ended.code == 130


def test_two_starts_at_once_are_one_start(make_site):
    site = make_site(limits=Limits(runs=1), workers=1)
    runs, refused = WebRuns(site.settings), []
    text = EXPERIMENT.format(trials=50, steps=400_000)

    def start(number: int) -> None:
        try:
            runs.start_text(site.folder / f"run-{number}", text)
        except RefusedError as error:
            refused.append(error.status)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == [429] * 5
    path = next(path for path in site.folder.glob("run-*"))
    wait(lambda: runs.is_ours(path))
    wait(lambda: read_status(path) is not None)
    runs.stop(path)
    wait(lambda: runs.count == 0)
    wait(lambda: all(child.poll() is not None for child in runs.processes._children.values()))


def test_no_more_runs_than_allowed(make_site, few):
    site = make_site(limits=replace(few, runs=0, actions=60, body_bytes=10_000))
    client = site.visitor()
    answer = site.post(client, "/new/start", name="more", toml=EXPERIMENT.format(trials=2, steps=10))
    assert answer.status_code == 429 and not (site.folder / "more").exists()


def test_nothing_is_stopped_where_nothing_runs(site):
    client = site.visitor()
    assert site.post(client, f"/x/{site.key()}/stop").status_code == 409
    assert site.post(client, f"/x/{site.key()}/continue").status_code == 409
