"""One state on every page, folders however large, HEAD as GET without a body, refusals without a traceback."""

import json
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from batchscale.records.tree.layout import RunPaths
from batchscale.run.status import read_status, write_status
from batchscale.web import experiment_check
from batchscale.web.process_record import process_start
from batchscale.web.records_folders import RecordsFolders
from batchscale.web.runs import WebRuns
from batchscale.web.settings import Limits


def register(site, name: str, noted_at: float) -> None:
    """Writes the record of a run as if this process were it."""
    runs = WebRuns(site.settings)
    runs.processes.folder.mkdir(parents=True, exist_ok=True)
    claim = {"pid": os.getpid(), "began": process_start(os.getpid()), "noted_at": noted_at}
    details = {"path": str(site.folder / name), "file": "x.toml", "is_own_file": False, "claim": claim}
    runs.processes.file(site.folder / name, "json").write_text(json.dumps(details))


@pytest.mark.parametrize("name", ["finished", "interrupted"])
def test_a_run_that_is_started_again_is_starting_and_nothing_else(site, name):
    register(site, name, time.time())
    client = site.visitor()
    page = client.get(f"/x/{site.key(name)}").text
    assert re.findall(r'class="state (\w+)"', page) == ["starting"]
    assert "The run is starting." in page and "% done" not in page and "data-events" in page
    row = client.get("/?q=" + name).text
    assert re.findall(r'<span class="state (\w+)"', row) == ["starting"] and "100 %" not in row


def test_a_run_that_has_ended_is_not_starting_while_its_process_prints_the_result(site):
    status = read_status(site.folder / "finished")
    write_status(site.folder / "finished", replace(status, written_at=time.time()))
    register(site, "finished", time.time() - 60)
    page = site.visitor().get(f"/x/{site.key()}").text
    assert re.findall(r'class="state (\w+)"', page) == ["finished"]
    assert "The process of the run is about to end." in page and "starting" not in page


def test_a_home_folder_full_of_folders_is_searched_for_seconds_only(site, tmp_path):
    folders = RecordsFolders((site.folder,), max_walk_s=0.0)
    assert folders.all() == [] and not folders.is_complete
    complete = RecordsFolders((site.folder,))
    assert {folder.name for folder in complete.all()} == {"finished", "interrupted"} and complete.is_complete


def test_the_overview_names_a_search_that_was_cut_short(site, monkeypatch):
    monkeypatch.setattr(RecordsFolders, "_roots", lambda self, *_: setattr(self, "is_complete", False) or iter(()))
    assert "There are too many folders to search all of them" in site.visitor().get("/").text


def test_records_near_the_top_are_listed_before_deep_folders_are_searched(tmp_path):
    for number in range(50):
        (tmp_path / "a" / str(number) / "deep" / "deeper").mkdir(parents=True)
    (tmp_path / "run" / ".batchscale").mkdir(parents=True)
    walked = []
    folders = RecordsFolders((tmp_path,))
    folders._is_table = lambda path: walked.append(path)
    roots = folders._roots(str(tmp_path), time.monotonic() + 60)
    assert next(roots) == str(tmp_path / "run")


def test_a_stray_file_hides_no_experiment(site):
    (site.folder / "notes").mkdir()
    (site.folder / "notes" / "study.json").write_text("{}")  # no study: its folder is no batch size
    assert {"finished", "interrupted"} <= {folder.name for folder in RecordsFolders((site.folder,)).all()}


def test_records_that_hold_the_token_are_not_served(site):
    RunPaths(site.folder / "finished").working.mkdir(exist_ok=True)
    inside = RecordsFolders((site.folder,), site.folder / "finished" / ".state")
    assert [folder.name for folder in inside.all()] == ["interrupted"]
    assert len(RecordsFolders((site.folder,), site.folder / ".state").all()) == 2


@pytest.mark.parametrize("path", ["/", "/x/{key}", "/x/{key}/events", "/x/{key}/records.zip", "/static/web.js"])
def test_head_gives_the_headers_of_get_and_no_body(site, path):
    client = site.visitor()
    path = path.format(key=site.key())
    answer = client.head(path)
    assert answer.status_code == 200 and answer.content == b"" and answer.headers["x-frame-options"] == "DENY"
    if "events" not in path:
        whole = client.get(path)
        assert answer.headers["content-type"] == whole.headers["content-type"]


def test_head_of_a_stranger_leads_to_the_sign_in_page_as_get_does(site):
    answer = site.stranger().head("/", headers={"accept": "text/html"})
    assert answer.status_code == 303 and answer.headers["location"] == "/sign-in"
    assert site.stranger().head("/").status_code == 401


def test_a_stream_too_many_is_refused_without_a_traceback(make_site, caplog):
    site = make_site(limits=Limits(streams=0))
    client = site.visitor()
    with caplog.at_level(logging.WARNING):
        assert client.get(f"/x/{site.key()}/events").status_code == 503
    assert caplog.records == []


def test_one_experiment_is_one(site):
    shutil.rmtree(site.folder / "interrupted")
    page = site.visitor().get("/").text
    assert "1 experiment, page 1 of 1" in page and "1 experiments" not in page


def test_an_estimate_is_for_the_workers_of_the_server(make_site, monkeypatch):
    commands = []

    def run(command, **_):
        commands.append(command)
        return SimpleNamespace(returncode=2, stdout="", stderr="stop here")

    monkeypatch.setattr(experiment_check, "subprocess", SimpleNamespace(**vars(subprocess) | {"run": run}))
    for workers, words in ((3, ["--workers", "3"]), (None, [])):
        site = make_site(workers=workers)
        toml = 'goal = "val/loss < 0.05"\nworkload = "noisy_quadratic/quadratic/sgd"\nbudget = { steps = 10 }\n'
        assert "stop here" in site.post(site.visitor(), "/new/estimate", toml=toml).text
        assert commands[-1][:4] == [sys.executable, "-m", "batchscale", "validate"]
        assert commands[-1][commands[-1].index("--json") + 1 :] == words
