"""Mirroring a run to trackers: everything arrives once, and no tracker harms a run."""

import json
import re
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from study_fakes import read_values, run_fake

from batchscale.errors import SpecError
from batchscale.records.importers.event_files import read_event_file
from batchscale.run import tracking
from batchscale.run.loop import RunResult
from batchscale.run.trackers.tracker import parse_tracker
from batchscale.spec.experiment import RunPlan
from batchscale.spec.file import parse_experiment


def run(root, *trackers, **changes):
    shown = []
    outcome = run_fake(root, settings={"track": trackers}, show=shown.append, **changes)
    assert outcome.result is RunResult.FINISHED
    return [status.notice for status in shown if status.notice]


def recorded(root):
    """The rows and ends in the tree, as the tracker should have them."""
    rows, ends = {}, {}
    for (study, trial_id), trial in read_values(root).items():
        name = f"{study}/{trial_id}"
        header, *lines = str(trial["rows"]).splitlines()
        names = header.split(",")[1:]
        for line in lines:
            step, *cells = line.split(",")
            rows[name, int(step)] = {n: float(cell) for n, cell in zip(names, cells, strict=True)}
        ends[name] = (trial["status"], trial["steps"])
    return rows, ends


def mirrored(file):
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    rows = [(entry[0], entry[1], entry[2]) for entry in entries if len(entry) == 4]
    ends = [(entry[0], (entry[1], entry[2])) for entry in entries if len(entry) == 3]
    assert len({row[:2] for row in rows}) == len(rows), "a measurement arrived twice"
    return {(name, step): values for name, step, values in rows}, ends


def check_complete(root, file):
    rows, ends = recorded(root)
    sent_rows, sent_ends = mirrored(file)
    assert rows.items() <= sent_rows.items()  # rows beyond a trial's end were sent before the end was known
    assert dict(sent_ends) == ends and len(sent_ends) == len(ends)


def test_every_measurement_and_end_arrives_once(tmp_path):
    assert run(tmp_path / "r", f"track_to_list:ToFile:{tmp_path}/sent") == []
    check_complete(tmp_path / "r", tmp_path / "sent")


def test_a_continued_run_sends_nothing_twice_and_what_is_missing(tmp_path):
    tracker = f"track_to_list:ToFile:{tmp_path}/sent"
    run(tmp_path / "r", trials=4)  # without a tracker: sent when one is given
    run(tmp_path / "r", tracker, trials=4)
    check_complete(tmp_path / "r", tmp_path / "sent")
    before = (tmp_path / "sent").read_text()
    run(tmp_path / "r", tracker, trials=4)
    assert (tmp_path / "sent").read_text() == before
    run(tmp_path / "r", tracker, trials=8)
    rows, _ = recorded(tmp_path / "r")
    assert rows.items() <= mirrored(tmp_path / "sent")[0].items()


def test_the_experiment_file_may_name_trackers(tmp_path):
    text = 'goal = "val/loss < 1"\nworkload = "noisy_quadratic/quadratic/sgd"\n[run]\n'
    for value, track in (('"tensorboard:a"', ("tensorboard:a",)), ('["a:B", "b:C:d"]', ("a:B", "b:C:d")), ("[]", ())):
        assert parse_experiment(f"{text}track = {value}\n").run.track == track
    plan = RunPlan(track=(f"track_to_list:ToFile:{tmp_path}/sent",))
    assert run(tmp_path / "r", run=plan) == []
    check_complete(tmp_path / "r", tmp_path / "sent")


@pytest.mark.parametrize(
    ("name", "notice"),
    [
        ("track_to_list:Failing", "ConnectionError: the server is away"),
        ("track_to_list:Broken", "SystemError: it cannot be made"),
        ("track_to_list:Missing", "AttributeError"),
        ("no_such_module:Tracker", "No module named 'no_such_module'"),
    ],
)
def test_a_failing_tracker_harms_nothing_and_is_noticed(tmp_path, name, notice, monkeypatch):
    monkeypatch.setattr(tracking, "RETRY_S", 0.0)
    run(tmp_path / "alone")
    notices = run(tmp_path / "r", f"{name}:{tmp_path}/sent")
    assert any(notice in text for text in notices), notices
    assert recorded(tmp_path / "r") == recorded(tmp_path / "alone")


def test_a_tracker_that_was_away_gets_everything_later(tmp_path, monkeypatch):
    monkeypatch.setattr(tracking, "RETRY_S", 0.0)
    notices = run(tmp_path / "r", f"track_to_list:FailingOnce:{tmp_path}/sent")
    assert any("the server was away" in text for text in notices)
    check_complete(tmp_path / "r", tmp_path / "sent")


def test_a_blocking_tracker_delays_the_end_by_a_limited_time(tmp_path, monkeypatch):
    monkeypatch.setattr(tracking, "CLOSE_S", 0.5)
    monkeypatch.setattr(tracking, "MAX_EVENTS", 5)  # the queue overflows
    started = time.monotonic()
    notices = run(tmp_path / "r", f"track_to_list:Blocking:{tmp_path}/sent")
    assert time.monotonic() - started < 60
    assert any("has not taken everything in time" in text for text in notices)
    # the next command sends all of it, to a tracker that takes it, under the same name
    journal = next((tmp_path / "r" / ".batchscale" / "tracking").iterdir())
    journal.rename(journal.with_name(journal.name.replace("Blocking", "ToFile")))
    run(tmp_path / "r", f"track_to_list:ToFile:{tmp_path}/sent")
    rows, ends = recorded(tmp_path / "r")
    sent_rows, sent_ends = mirrored(tmp_path / "sent")
    assert dict(sent_ends) == ends
    claimed = rows.keys() - sent_rows.keys()  # those that the blocked call had claimed before it was given up
    assert len({name for name, _ in claimed}) <= 1


def test_a_killed_run_that_is_continued_sends_nothing_twice(tmp_path):
    tracker, folders = f"track_to_list:ToFile:{tmp_path}/sent", [str(Path(__file__).parent), *sys.path]
    code = (
        f"import sys; sys.path[:] = {folders!r}\nfrom pathlib import Path\nfrom study_fakes import run_fake\n"
        f"run_fake(Path({str(tmp_path / 'r')!r}), settings={{'track': ({tracker!r},)}}, options={{'sleep_s': 0.02}})"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    sent = tmp_path / "sent"
    while time.monotonic() < deadline and (not sent.exists() or sent.read_text().count("\n") < 12):
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -9
    complete_lines = sent.read_text().rpartition("\n")[0] + "\n"  # a line that the kill cut off did not arrive
    sent.write_text(complete_lines)
    before = mirrored(sent)[0]
    run(tmp_path / "r", tracker)
    rows, ends = recorded(tmp_path / "r")
    sent_rows, sent_ends = mirrored(sent)  # which asserts that none is there twice
    assert dict(sent_ends) == ends
    assert len(before) >= 8 and before.items() <= sent_rows.items()
    lost = {name for name, _ in rows.keys() - sent_rows.keys()}
    assert len(lost) <= 1, "only rows that were being sent at the kill may be missing"


def test_tensorboard_files_have_the_measurements_and_metaparameters(tmp_path):
    assert run(tmp_path / "r", f"tensorboard:{tmp_path}/logs") == []
    rows, ends = recorded(tmp_path / "r")
    for name, (status, _) in ends.items():
        files = list((tmp_path / "logs" / "r" / name).iterdir())
        assert len(files) == 1
        events = read_event_file(files[0])
        expected = {(tag, s, struct.unpack("<f", struct.pack("<f", v))[0]) for (n, s), row in rows.items() if n == name
                    for tag, v in row.items() if v == v}  # fmt: skip
        assert expected <= {point for point in events.scalars if point[2] == point[2]}
        assert not events.damaged and not events.cut_off
        assert events.session_status == (2 if status == "INCOMPLETE" else 1)
        assert events.hparams["batch_size"] == float(name.split("/")[3]) and "learning_rate" in events.hparams


@pytest.mark.parametrize("text", ["mlflow", "mlflow:", "tensorbord:x", "a b:C", "x:lower"])
def test_wrong_names_of_trackers_are_refused_before_anything_runs(tmp_path, text):
    with pytest.raises(SpecError, match="must be NAME:TARGET"):
        run_fake(tmp_path / "r", settings={"track": (text,)})
    assert not (tmp_path / "r").exists()


def test_the_tracker_of_the_guide_writes_its_table(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
    code = re.search(r"^```python my_trackers/table.py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1]
    (tmp_path / "my_trackers").mkdir()
    (tmp_path / "my_trackers" / "table.py").write_text(code)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    assert run(tmp_path / "r", "my_trackers.table:ToTable:runs.csv") == []
    rows, ends = recorded(tmp_path / "r")
    lines = [line.split(",") for line in (tmp_path / "runs.csv").read_text().splitlines()]
    assert {line[0] for line in lines if line[3] == "status"} == ends.keys()
    assert {(line[0], int(line[2])) for line in lines if line[3] != "status"} >= rows.keys()


def test_names_of_trackers():
    name = parse_tracker("mlflow:sqlite:///a.db")
    assert (name.reference, name.target) == ("batchscale.run.trackers.mlflow:MlflowTracker", "sqlite:///a.db")
    assert parse_tracker("pkg.mod:Mine").target == ""
