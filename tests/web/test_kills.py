"""SIGKILLs of the server at random moments while runs go on: no run is harmed, and the page comes back."""

import http.client
import random
import threading
import time
from pathlib import Path

import psutil
import pytest
from study_fakes import read_values
from web_process import WebProcess

from batchscale.records.tree.layout import RunPaths
from batchscale.run.status import is_running, read_status
from batchscale.web.records_folders import make_records_folder

EXPERIMENT = """goal = "val/classification_error < 0.06"
batch_sizes = [16, 128]
trials = {trials}
stop = "budget"
workload = "digits/fc_64/nesterov_momentum"
[budget]
steps = 1500
[evaluation]
count = 10
[search]
repeats = 0
"""


class Crowd:
    """Visitors that ask for pages all the time, and do not mind being cut off."""

    def __init__(self, server: WebProcess, paths: list[str]) -> None:
        self.answered, self.wrong = 0, []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._visit, args=(server, path), daemon=True) for path in paths]
        for thread in self._threads:
            thread.start()

    def _visit(self, server: WebProcess, path: str) -> None:
        while not self._ended.is_set():
            try:
                status = server.ask(path)[0]
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)  # nobody is there at the moment, or not any more in the middle of an answer
                continue
            self.answered += 1
            if status != 200:
                self.wrong.append((path, status))
            time.sleep(0.02)

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(60)


def kill_many(tmp_path: Path, kills: int, trials: int) -> int:
    """Kill the server so often, with runs going on all the time; gives how many runs came to their end meanwhile."""
    chance = random.Random(1)
    folder = tmp_path / "records"
    folder.mkdir()
    server = WebProcess(folder, tmp_path / "state", "--workers", "1")
    server.sign_in()
    text = EXPERIMENT.format(trials=trials)
    runs = 0

    def begin() -> tuple[Path, str, int]:
        path = folder / f"run-{runs}"
        assert server.ask("/new/start", {"name": path.name, "toml": text})[0] == 303
        end = time.monotonic() + 120
        while not (is_running(path) and RunPaths(path).lock.read_text().strip()) or read_status(path) is None:
            assert time.monotonic() < end, "the run did not begin"
            time.sleep(0.05)
        return path, f"/x/{make_records_folder(path, folder).id}-0", int(RunPaths(path).lock.read_text())

    path, page, driver = begin()
    crowd = Crowd(server, ["/", page, f"{page}/answer", f"{page}/chart/curve.json"])
    last_id = ""
    try:
        for _ in range(kills):
            time.sleep(chance.uniform(0.0, 1.5))
            server.kill()
            assert psutil.pid_exists(driver) or read_status(path).finished
            server.start()
            server.wait()
            status, _, html = server.ask(page)
            assert status == 200 and path.name in html
            if is_running(path):
                told = server.first_event(f"{page}/events", last_id)
                assert told != last_id
                last_id = told
            elif read_status(path).finished:
                runs += 1
                path, page, driver = begin()
        stop_and_go_on(server, path, page, driver)
    finally:
        crowd.end()
        server.end()
    assert crowd.answered > kills and not crowd.wrong
    return runs


def stop_and_go_on(server: WebProcess, path: Path, page: str, driver: int) -> None:
    """After all those kills the run is still ours to stop and to continue; then it goes on to its end."""
    if is_running(path):
        assert server.ask(f"{page}/stop", {})[0] in (303, 409)
    end = time.monotonic() + 300
    while psutil.pid_exists(driver) and is_running(path):
        assert time.monotonic() < end
        time.sleep(0.1)
    while not read_status(path).finished:
        assert time.monotonic() < end, "the run does not come to its end"
        if not is_running(path):
            server.ask(f"{page}/continue", {})  # refused while the one before is still leaving
        time.sleep(1)
    while is_running(path):
        time.sleep(0.1)


def compare(tmp_path: Path, runs: int, trials: int) -> None:
    """Every run recorded what a run recorded that nobody watched."""
    import subprocess
    import sys

    file = tmp_path / "experiment.toml"
    file.write_text(EXPERIMENT.format(trials=trials))
    alone = tmp_path / "alone"
    words = ["run", str(file), "--out", str(alone), "--workers", "1", "--quiet"]
    subprocess.run([sys.executable, "-m", "batchscale", *words], check=True, stdout=subprocess.DEVNULL, timeout=600)
    expected = read_values(alone)
    assert len(expected) >= 2 * trials
    for number in range(runs + 1):
        assert read_values(tmp_path / "records" / f"run-{number}") == expected


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_few_kills_of_the_server_harm_no_run(tmp_path):
    compare(tmp_path, kill_many(tmp_path, kills=3, trials=4), trials=4)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_fifty_kills_of_the_server_harm_no_run(tmp_path):
    compare(tmp_path, kill_many(tmp_path, kills=50, trials=30), trials=30)
