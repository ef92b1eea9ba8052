"""Whole runs with a user's script: the same records however they came about, and an outcome for every failure."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from study_fakes import read_values
from trainer_fakes import HERE, SOURCE, environment, experiment_text, make_trainer_plan

from batchscale.errors import RunError
from batchscale.run.loop import RunResult
from batchscale.run.session import RunSettings, run_plan
from batchscale.spec.file import parse_experiment
from batchscale.spec.plan import make_plan
from batchscale.trainers.command import describe_trainer

PRINTING = str(HERE / "printing_script.py")


@pytest.fixture(autouse=True)
def user_environment(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", SOURCE)


def run(tmp_path, *words, name="records", runner="inline", more="resume = true\n", retries=3, **options):
    plan = make_trainer_plan(*words, folder=tmp_path, more=more, **options)
    outcome = run_plan(plan, tmp_path / name, RunSettings(runner, workers=2, retries=retries))
    assert outcome.result is RunResult.FINISHED
    return read_values(tmp_path / name)


def scripts_alive(folder: Path) -> list[int]:
    """The processes of scripts whose trials are in this folder."""
    found = []
    for process in psutil.process_iter(["environ", "status"]):
        text = (process.info["environ"] or {}).get("BATCHSCALE_TRIAL", "")
        if text.startswith(str(folder)) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


def wait_until_gone(folder: Path, seconds: float = 20) -> None:
    """Supervisors end their scripts as soon as they see that their worker is gone."""
    deadline = time.monotonic() + seconds
    while scripts_alive(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert scripts_alive(folder) == []


def test_records_are_the_same_inline_and_in_workers_resumed_or_not(tmp_path):
    size = {"sizes": (1, 8), "trials": 2}
    inline = run(tmp_path, **size)
    assert len(inline) == 4
    assert {trial["status"] for trial in inline.values()} == {"COMPLETE"}
    assert run(tmp_path, name="workers", runner="local", more="resume = true\nmax_paused = 1\n", **size) == inline
    assert run(tmp_path, name="again", more="max_paused = 0\n", **size) == inline
    assert scripts_alive(tmp_path) == []


def test_the_tokens_that_a_script_reports_are_recorded_and_cannot_change(tmp_path):
    def start(words=("tokens=512",), top="", trials=1, name="records"):
        text = f"{top}\n{experiment_text(*words, trials=trials, steps=20)}"
        experiment = parse_experiment(text, folder=tmp_path)
        plan = make_plan(experiment, describe_trainer(experiment))
        run_plan(plan, tmp_path / name, RunSettings("inline", retries=1))
        study = json.loads((tmp_path / name / "fake/script/none/8/study.json").read_text())
        return study["batchscale"].get("tokens_per_example"), study["batch_size"]

    assert start() == (512, 8)
    with pytest.raises(RunError, match=r"tokens_per_example must be that of the records, 512. Found 256"):
        start(top="tokens_per_example = 256", trials=2)
    assert start(top="tokens_per_example = 512", trials=2) == (512, 8)  # the key may be added
    with pytest.raises(RunError, match=r"must report the tokens_per_example of its experiment, 256. Found 512"):
        start(top="tokens_per_example = 256", name="other")
    assert start(words=(), top="tokens_per_example = 256", name="file") == (256, 8)
    with pytest.raises(RunError, match=r"tokens_per_example: 256 recorded, 128 requested"):
        start(words=(), top="tokens_per_example = 128", name="file")
    assert start(words=(), name="none") == (None, 8)


@pytest.mark.parametrize("words", [(), ("save_in_loop=1",)], ids=["saves as it exits", "saves in its loop"])
def test_two_workers_start_each_script_once_and_resume_it_wherever_it_goes(tmp_path, words):
    starts = tmp_path / "starts"
    slow = ("import_s=1", f"starts={starts}", *words)
    values = run(tmp_path, *slow, runner="local", trials=3, sizes=(8,), steps=200)
    assert {trial["status"] for trial in values.values()} == {"COMPLETE"}
    lines = starts.read_text().splitlines()
    assert len(lines) == 3, lines  # the scripts take longer to start than to train: none is moved
    starts.unlink()
    paused = "resume = true\nmax_paused = 1\n"
    moved = run(tmp_path, f"starts={starts}", "sleep_s=0.002", name="moved", runner="local", more=paused, steps=200)
    seen = set()
    for _, trial_id, start, resume in map(str.split, starts.read_text().splitlines()):
        assert (trial_id in seen) == (resume == "True") == (int(start) > 0)
        seen.add(trial_id)
    assert len(moved) == 5


def test_a_trial_that_fails_is_incomplete_with_its_last_lines_and_the_run_goes_on(tmp_path):
    values = run(tmp_path, "mischief=raise", "at=25", "bad=2", retries=1, trials=3)
    failed = {key: trial for key, trial in values.items() if trial["status"] == "INCOMPLETE"}
    assert {trial_id for _, trial_id in failed} == {2}
    own = next(iter(failed.values()))["own"]
    assert "exited with code 1 before its measurement at step 30" in own["failure"]
    assert any("this trial cannot be trained" in line for line in own["log_lines"])
    assert sum(trial["status"] == "COMPLETE" for trial in values.values()) == 3


@pytest.mark.parametrize("at", [5, 25])
def test_trials_that_all_fail_alike_end_the_run_with_their_message(tmp_path, at):
    with pytest.raises(RunError, match=r"must be trainable, but the first 3 all failed(.|\n)*cannot be trained"):
        run(tmp_path, "mischief=raise", f"at={at}", retries=0)
    assert scripts_alive(tmp_path) == []


@pytest.mark.parametrize("kind", ["nan", "diverged"])
def test_trials_that_diverge_are_infeasible_and_others_take_their_place(tmp_path, kind):
    values = run(tmp_path, f"mischief={kind}", "at=15", "bad=1,3", grace_s=1, trials=3)  # one that trains on gets it
    infeasible = {trial_id for (_, trial_id), trial in values.items() if trial["status"] == "INFEASIBLE"}
    assert infeasible == {1, 3}
    assert sum(trial["status"] == "COMPLETE" for trial in values.values()) == 3


def test_a_longer_budget_goes_on_from_what_was_saved(tmp_path):
    run(tmp_path, stop="budget", trials=2)
    longer = run(tmp_path, stop="budget", steps=150, trials=2)
    assert longer == run(tmp_path, name="whole", stop="budget", steps=150, trials=2)


@pytest.mark.parametrize("stop", ["race", "goal", "budget"])
def test_a_script_that_only_prints_is_measured_by_a_pattern(tmp_path, stop):
    values = run_printing(tmp_path, stop, 'pattern = "step {step}: {} error={val/error}"')
    assert {trial["status"] for trial in values.values()} == {"COMPLETE"}
    if stop == "budget":
        assert all(trial["steps"] == 100 for trial in values.values())
    assert scripts_alive(tmp_path) == []


def test_a_script_that_writes_a_table_is_measured_by_it(tmp_path):
    names = 'names = { global_step = "step", eval_error = "val/error" }'
    values = run_printing(tmp_path, "race", f'csv = "{{folder}}/metrics.csv"\n{names}', "{folder}/metrics.csv")
    assert values == run_printing(tmp_path, "race", 'pattern = "step {step}: {} error={val/error}"', name="printed")


def run_printing(tmp_path, stop, reports, *table, name="records"):
    words = [sys.executable, PRINTING, "{learning_rate}", "{batch_size}", "{max_steps}", *table]
    head = experiment_text(stop=stop, trials=3).partition("command = ")[0]
    text = f"{head}command = {words!r}\n[trainer.reports]\n{reports}\n"
    (tmp_path / "experiment.toml").write_text(text)
    answer = batchscale(tmp_path, "run", "experiment.toml", "--out", name, "--workers", "2", "--quiet")
    assert answer.returncode == 0, answer.stderr
    return read_values(tmp_path / name)


def batchscale(folder, *words):
    command = [sys.executable, "-m", "batchscale", *words]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=100)


# --- failures that are said, and end a run, early ------------------------------------------------------------------


def with_timeout(timeout_s: float, text: str, folder: Path):
    experiment = parse_experiment(text.replace("timeout_s = 30", f"timeout_s = {timeout_s}"), folder=folder)
    return make_plan(experiment, describe_trainer(experiment))


def run_until_refused(tmp_path, *words, timeout_s=30.0, **settings) -> tuple[str, list[str]]:
    """The message of a run that ends by itself, and the starts of its scripts."""
    starts = tmp_path / "starts"
    plan = with_timeout(timeout_s, experiment_text(*words, f"starts={starts}", trials=6, sizes=(1, 8)), tmp_path)
    with pytest.raises(RunError) as error:
        run_plan(plan, tmp_path / "records", RunSettings("local", workers=2, **settings))
    return str(error.value), starts.read_text().splitlines()


def test_scripts_that_hang_from_the_start_cost_one_time_out_each_worker(tmp_path):
    message, starts = run_until_refused(tmp_path, "mischief=hang", "at=5", timeout_s=2)
    assert "the first 2 scripts reported nothing" in message and "trainer.timeout_s" in message
    assert "--keep-going" in message and "about to misbehave" in message
    assert len(starts) <= 4  # two that timed out, and what their workers had begun since
    wait_until_gone(tmp_path)


def test_a_trial_that_hangs_in_the_middle_is_tried_once_more(tmp_path):
    starts = tmp_path / "starts"
    text = experiment_text("mischief=hang", "at=5", "bad=2", f"starts={starts}", trials=3)
    plan, shown = with_timeout(2, text, tmp_path), []
    run_plan(plan, tmp_path / "records", RunSettings("local", workers=1), show=shown.append)
    assert (
        sum(line.split()[1] == "2" for line in starts.read_text().splitlines()) == 3
    )  # in a job of many, and twice alone
    assert any("A trial failed. The script must report a measurement every 2 s" in (s.notice or "") for s in shown)
    assert shown[-1].failures == {"time-out": 3}


def test_scripts_that_all_diverge_at_once_end_the_run_unless_told_otherwise(tmp_path):
    message, starts = run_until_refused(tmp_path, "mischief=nan", "at=5")
    assert "the first 10 all diverged before their first measurement: val/error was NaN" in message
    assert "--keep-going" in message
    assert 10 <= len(starts) <= 30


def test_scripts_that_all_diverge_are_results_to_those_who_keep_going(tmp_path, monkeypatch):
    monkeypatch.setattr("batchscale.run.scheduler.MAX_DIVERGED", 2)
    text = experiment_text("mischief=nan", "at=5", trials=2).replace("repeats = 0", "repeats = 0\nmax_attempts = 4")
    plan = with_timeout(30, text, tmp_path)
    with pytest.raises(RunError, match="all diverged before their first measurement"):
        run_plan(plan, tmp_path / "records", RunSettings("inline"))
    run_plan(plan, tmp_path / "records", RunSettings("inline", keep_going=True))
    values = read_values(tmp_path / "records")
    assert [trial["status"] for trial in values.values()] == ["INFEASIBLE"] * 4


def test_a_pattern_that_matches_nothing_is_said_with_the_lines_it_was_tried_on(tmp_path):
    answer = run_printing_once(tmp_path, 'pattern = "iter {step}: error={val/error}"')
    assert answer.returncode == 2
    assert "'iter {step}: error={val/error}' matched no printed line. The first were:" in answer.stderr
    assert "step 10: loss=" in answer.stderr


def run_printing_once(tmp_path, reports):
    words = [sys.executable, PRINTING, "{learning_rate}", "{batch_size}", "{max_steps}"]
    head = experiment_text(trials=3).partition("command = ")[0]
    (tmp_path / "experiment.toml").write_text(f"{head}command = {words!r}\n[trainer.reports]\n{reports}\n")
    return batchscale(tmp_path, "trainer", "check", "experiment.toml")


def test_a_script_that_floods_a_pattern_dies_with_its_driver(tmp_path):
    """Lines on which one regular expression with these gaps would take longer than the machine lives."""
    (tmp_path / "flood.py").write_text("while True:\n    print('x ' * 30_000, flush=True)\n")
    words = [sys.executable, "flood.py", "{learning_rate}", "{batch_size}"]
    head = experiment_text(trials=3).partition("command = ")[0]
    reports = "[trainer.reports]\npattern = '{} {} {} {} step={step} {} error={val/error}'\n"
    (tmp_path / "experiment.toml").write_text(f"{head}command = {words!r}\n{reports}")
    command = [sys.executable, "-m", "batchscale", "run", "experiment.toml", "--out", "records", "-q"]
    driver = subprocess.Popen(command, cwd=tmp_path, env=environment())
    deadline = time.monotonic() + 60
    while not scripts_alive(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    supervisors = {psutil.Process(pid).ppid() for pid in scripts_alive(tmp_path)}
    assert supervisors
    time.sleep(1)
    driver.kill()
    driver.wait()
    deadline = time.monotonic() + 20
    while (scripts_alive(tmp_path) or any(map(psutil.pid_exists, supervisors))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert scripts_alive(tmp_path) == [] and not any(map(psutil.pid_exists, supervisors))


# --- secrets ------------------------------------------------------------------------------------------------------


def files_with(text: str, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_no_file_of_a_run_has_the_values_of_the_trainers_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_API_KEY", "sk-passed-by-name")
    more = 'pass_env = ["FAKE_API_KEY"]\nenv = { OTHER_TOKEN = "sk-in-the-file", PLACE = "fr-paris-1" }\n'
    words = ("mischief=secrets", "bad=2", "at=25", "--password", "sk-in-the-command")
    text = experiment_text(*words, more=more, trials=3)
    (tmp_path / "experiment.toml").write_text(text)
    answer = batchscale(tmp_path, "run", "experiment.toml", "--out", "records", "--workers", "2", "--retries", "0")
    assert answer.returncode == 0, answer.stderr
    assert batchscale(tmp_path, "report", "records", "--out", "report.html").returncode == 0
    shown = answer.stdout + answer.stderr + batchscale(tmp_path, "validate", "experiment.toml").stdout
    (tmp_path / "experiment.toml").rename(tmp_path / "records.toml")
    for secret in ("sk-passed-by-name", "sk-in-the-file", "fr-paris-1", "sk-in-the-command"):
        assert files_with(secret, tmp_path) == [tmp_path / "records.toml"] * (secret != "sk-passed-by-name")
        assert secret not in shown
    (failed,) = [trial["own"] for trial in read_values(tmp_path / "records").values() if "failure" in trial["own"]]
    assert "the variables are *** and ***" in failed["log_lines"]
    stored = json.loads((tmp_path / "records/.batchscale/experiment.json").read_text())
    assert stored["experiment"]["trainer.env"] == {"OTHER_TOKEN": "***", "PLACE": "***"}

    # a folder of an older version, which stored the values: it is continued, and they are removed
    stored["experiment"]["trainer.env"] = {"OTHER_TOKEN": "sk-in-the-file", "PLACE": "fr-paris-1"}
    stored["experiment"]["trainer.command"][-1] = "sk-in-the-command"
    (tmp_path / "records/.batchscale/experiment.json").write_text(json.dumps(stored))
    (tmp_path / "more.toml").write_text(text.replace("trials = 3", "trials = 4"))
    answer = batchscale(tmp_path, "run", "more.toml", "--out", "records", "--workers", "2", "--retries", "0")
    assert answer.returncode == 0, answer.stderr
    assert files_with("sk-in-the-file", tmp_path / "records") == []
    (tmp_path / "other.toml").write_text(text.replace("fr-paris-1", "us-east-1"))
    answer = batchscale(tmp_path, "run", "other.toml", "--out", "records")
    assert answer.returncode == 2 and "trainer.env" in answer.stderr and "paris" not in answer.stderr

    monkeypatch.delenv("FAKE_API_KEY")
    answer = batchscale(tmp_path, "run", "records.toml", "--out", "records")
    assert answer.returncode == 2 and "'FAKE_API_KEY', which is not set" in answer.stderr


# --- kills --------------------------------------------------------------------------------------------------------


class Ordeal(NamedTuple):
    """How large the experiment is that is killed, and how long a process may live at most until the next kill."""

    trials: int
    steps: int
    sleep_s: float
    lives_s: float

    @property
    def size(self) -> dict:
        return {"steps": self.steps, "sizes": (1, 8), "trials": self.trials}


SMALL = Ordeal(trials=3, steps=100, sleep_s=0.006, lives_s=1.5)
LARGE = Ordeal(trials=6, steps=200, sleep_s=0.003, lives_s=2.5)


def uninterrupted(folder: Path, ordeal: Ordeal) -> dict:
    """The records of a run that nobody kills; whether its trials could resume makes no difference to them."""
    plan = make_trainer_plan(f"sleep_s={ordeal.sleep_s}", folder=folder, **ordeal.size)
    assert run_plan(plan, folder / "whole", RunSettings("local", workers=2)).result is RunResult.FINISHED
    return read_values(folder / "whole")


def torture(tmp_path, kills: list[str], more: str, ordeal: Ordeal, expected: dict) -> None:
    """Kill driver, workers and scripts at random moments, then compare with an uninterrupted run."""
    (tmp_path / "experiment.toml").write_text(experiment_text(f"sleep_s={ordeal.sleep_s}", more=more, **ordeal.size))
    chance = random.Random(1)
    chance.shuffle(kills)
    words = ["run", "experiment.toml", "--workers", "2", "--retries", "1000", "--quiet", "--out"]

    def start(name: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "batchscale", *words, name]
        return subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL)

    driver, rounds = start("parts"), 0
    while kills:
        time.sleep(chance.uniform(0.2, ordeal.lives_s))
        if driver.poll() is not None:
            assert driver.returncode == 0
            rounds += 1
            (tmp_path / "parts").rename(tmp_path / f"finished-{rounds}")
            driver = start("parts")
            continue
        victims = {"driver": [driver.pid], "script": scripts_alive(tmp_path / "parts")}
        victims["worker"] = [child.pid for child in psutil.Process(driver.pid).children()]
        if victims[kills[-1]]:
            try:
                psutil.Process(chance.choice(victims[kills[-1]])).kill()
            except psutil.NoSuchProcess:
                continue
            if kills.pop() == "driver":
                driver.wait()
                driver = start("parts")
    assert driver.wait(timeout=600) == 0
    assert len(expected) >= 2 * ordeal.trials
    for name in ["parts", *(f"finished-{number}" for number in range(1, rounds + 1))]:
        assert read_values(tmp_path / name) == expected
    wait_until_gone(tmp_path)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", SOURCE)
        return uninterrupted(tmp_path_factory.mktemp("small"), SMALL)


BOTH_KINDS = pytest.mark.parametrize(
    "more", ["resume = true\nmax_paused = 2\n", "max_paused = 2\n"], ids=["resumes", "cannot"]
)


@pytest.mark.timeout(300)
@BOTH_KINDS
def test_a_few_kills_leave_the_records_of_an_uninterrupted_run(tmp_path, more, small):
    torture(tmp_path, ["driver", "worker", "script"], more, SMALL, small)


@pytest.mark.torture
@pytest.mark.timeout(7200)
@BOTH_KINDS
def test_fifty_kills_of_the_driver_and_fifty_of_others_leave_the_same_records(tmp_path, more):
    expected = uninterrupted(tmp_path, LARGE)
    torture(tmp_path, ["driver"] * 50 + ["worker"] * 25 + ["script"] * 25, more, LARGE, expected)


def test_no_script_survives_its_driver(tmp_path):
    (tmp_path / "experiment.toml").write_text(experiment_text("sleep_s=0.05", more="resume = true\n"))
    command = [sys.executable, "-m", "batchscale", "run", "experiment.toml", "--out", "records", "-q"]
    driver = subprocess.Popen(command, cwd=tmp_path, env=environment())
    deadline = time.monotonic() + 60
    while not scripts_alive(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert scripts_alive(tmp_path)
    os.kill(driver.pid, 9)
    driver.wait()
    wait_until_gone(tmp_path)


# --- commands ------------------------------------------------------------------------------------------------------


def test_validate_shows_a_command_and_check_says_what_the_trainer_can_do(tmp_path):
    (tmp_path / "experiment.toml").write_text(experiment_text("x={learning_rate}", more="resume = true\n"))
    shown = batchscale(tmp_path, "validate", "experiment.toml").stdout
    assert f"command   {sys.executable}" in shown and "x=0.0223" in shown
    found = json.loads(batchscale(tmp_path, "trainer", "check", "experiment.toml", "--json").stdout)
    assert found["steps"] == [10, 20, 30] and found["metrics"] == ["val/error", "train/error"]
    assert (found["pauses"], found["resumed_from"], found["largest_difference"]) == ("waits", 20, 0.0)


def test_check_fails_with_the_scripts_own_words(tmp_path):
    (tmp_path / "experiment.toml").write_text(experiment_text("mischief=raise", "at=5"))
    answer = batchscale(tmp_path, "trainer", "check", "experiment.toml")
    assert answer.returncode == 2 and "this trial cannot be trained" in answer.stderr
    assert "batchscale/trainers" not in answer.stderr
