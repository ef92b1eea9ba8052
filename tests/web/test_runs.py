"""Runs started from the browser: real driver processes, stopped and continued, and never another's process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from batchscale.driver import is_running, read_snapshot
from batchscale.records import RunPaths
from batchscale.web.refusals import RefusedError
from batchscale.web.runs import StartedRun, WebRuns

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


def test_a_run_is_started_stopped_and_continued_to_the_end(make_site):
    site = make_site(workers=1)
    client = site.visitor()
    text = EXPERIMENT.format(trials=3, steps=200_000)
    answer = site.post(client, "/new/start", name="mine", toml=text)
    assert answer.status_code == 303, answer.text
    page, path = answer.headers["location"], site.folder / "mine"
    runs = WebRuns(site.settings)  # a second server: what it knows is on disk
    started = runs.find(path)
    assert started is not None and os.getsid(started.pid) == started.pid != os.getsid(0)
    assert site.post(client, "/new/start", name="mine", toml=text).status_code == 409
    wait(lambda: runs.is_ours(path))
    wait(lambda: read_snapshot(path) is not None)
    assert 'id="stop"' in client.get(page).text
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
    snapshot = read_snapshot(path)
    return snapshot is not None and snapshot.finished


def test_a_mistake_is_told_with_the_words_of_the_command_line(make_site):
    site = make_site()
    client = site.visitor()
    text = EXPERIMENT.format(trials=2, steps=10).replace("noisy_quadratic/quadratic", "no_such_data/fc_64")
    page = site.post(client, "/new/start", name="wrong", toml=text).headers["location"]
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
    began = psutil.Process(child.pid).create_time()
    for claim in (
        StartedRun(str(root), "x.toml", child.pid, began - 5),  # the number is used again
        StartedRun(str(root), "x.toml", os.getpid(), psutil.Process().create_time()),  # not the one that holds the lock
    ):
        runs._started[str(root)] = claim
        assert not runs.is_ours(root)
        with pytest.raises(RefusedError):
            runs.stop(root)
    assert child.poll() is None
    runs._started[str(root)] = StartedRun(str(root), "x.toml", child.pid, began)
    runs.stop(root)
    assert child.wait(20) != 0


def test_no_more_runs_than_allowed(make_site, few):
    site = make_site(limits=replace(few, runs=0, actions=60, body_bytes=10_000))
    client = site.visitor()
    answer = site.post(client, "/new/start", name="more", toml=EXPERIMENT.format(trials=2, steps=10))
    assert answer.status_code == 429 and not (site.folder / "more").exists()


def test_nothing_is_stopped_where_nothing_runs(site):
    client = site.visitor()
    assert site.post(client, f"/x/{site.key()}/stop").status_code == 409
    assert site.post(client, f"/x/{site.key()}/continue").status_code == 409
