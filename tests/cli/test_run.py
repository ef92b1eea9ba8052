"""``batchscale run`` and ``batchscale status``: bad input ends in one paragraph before anything runs."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from batchscale.analysis.curve_analysis import analyze
from batchscale.analysis.curves import read_curve
from batchscale.analysis.sentences import answer_sentences
from batchscale.cli.app import make_app
from batchscale.cli.run import explain_lost_nodes, find_ray_address
from batchscale.cli.run_result import describe_regimes
from batchscale.errors import REQUEUE, BatchscaleError, RunError
from batchscale.records.tree.read import read_tree
from batchscale.run.settings import RunSettings
from batchscale.spec.experiment import RayPlan
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

sys.path.insert(0, str(Path(__file__).parents[1] / "analysis"))
from build_records import curve_studies, write_tree

GOOD = """
goal = "val/classification_error < 0.1"
batch_sizes = [64]
trials = 2
[workload]
dataset = "digits"
model = "fc_64"
optimizer = "sgd"
"""


def invoke(*words: object):
    return CliRunner().invoke(make_app(), [str(word) for word in words])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('dataset = "digits"', 'dataset = "digitz"', "digits"),
        ('model = "fc_64"', 'model = "no_such_model"', "no_such_model"),
        ("classification_error", "perplexity", "perplexity"),
        ("[64]", "[64, 5000]", "must not exceed the training set"),
        ("trials = 2", "trials = 2\nmetrics = []", "metrics: the goal's metric"),
        ("trials = 2", "trials = 2\nbudget = { steps = 1000000000000 }", "budget.steps"),
        ("trials = 2", "trials = 2\nsearch = { max_attempts = 1 }", "search.max_attempts"),
        ('dataset = "digits"', 'dataset = "mnist"', "mnist"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(tmp_path, monkeypatch, old, new, message):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no_cache"))
    monkeypatch.delenv("BATCHSCALE_DATA", raising=False)
    file = tmp_path / "experiment.toml"
    file.write_text(GOOD.replace(old, new))
    result = invoke("run", file, "--out", tmp_path / "out")
    assert isinstance(result.exception, BatchscaleError)
    assert message in str(result.exception)
    assert "experiment.toml" in str(result.exception) or "mnist" in new
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run", "experiment.toml", "--out", "out"], 2, "no_such_model"),
        (["run", "experiment.toml"], 2, "--out"),
        (["run", "none.toml", "--out", "out", "--json"], 2, "none.toml"),
        (["quickstart", "--workload", "none"], 2, "none"),
        (["run", "--help"], 0, ""),
    ],
)
def test_a_command_that_ends_with_a_message_leaves_no_process(tmp_path, words, code, message):
    (tmp_path / "experiment.toml").write_text(GOOD.replace("fc_64", "no_such_model"))
    environment = {**os.environ, "TEST_OF_ENDED_PROCESSES": str(tmp_path)}
    command = [sys.executable, "-m", "batchscale", *words]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == code, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert code == 0 or result.stdout == ""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            assert process.environ().get("TEST_OF_ENDED_PROCESSES") != str(tmp_path)


def test_a_read_only_place_is_refused_before_anything_runs(tmp_path):
    file = tmp_path / "experiment.toml"
    file.write_text(GOOD)
    result = invoke("run", file, "--out", "/proc/records")
    assert isinstance(result.exception, BatchscaleError)
    assert "/proc/records" in str(result.exception)


def test_status_of_a_folder_without_a_run_says_what_to_do(tmp_path):
    result = invoke("status", tmp_path)
    assert isinstance(result.exception, BatchscaleError)
    assert "batchscale run" in str(result.exception)


def snapshot(**changes) -> dict:
    study = {"batch_size": 8, "search": 1, "done": False, "wanted": 5, "complete": 3, "infeasible": 1, "incomplete": 0}
    study |= {"running": 2, "reached": 1, "best_steps": 40, "front": 90, "train_steps": 100, "share": 0.5}
    study |= {"trial_steps": 900, "seconds": 2.0}
    whole = {"workload": "digits/fc_64/sgd", "goal": "val/error < 0.1", "source": "x.toml", "written_at": 0.0}
    whole |= {"elapsed_s": 3.0, "workers": 2, "steps_per_s": 300.0, "time_left_s": 9.0, "finished": False}
    return whole | {"studies": [study]} | changes


def test_status_calls_a_run_without_a_live_lock_stopped_and_changes_nothing(tmp_path):
    (tmp_path / ".batchscale").mkdir()
    path = tmp_path / ".batchscale" / "status.json"
    path.write_text(json.dumps(snapshot()))
    before = path.read_bytes()
    result = invoke("status", tmp_path, "--json")
    found = json.loads(result.output)
    assert (found["state"], found["studies"][0]["best_steps"]) == ("stopped", 40)
    assert (found["studies"][0]["running"], found["time_left_s"]) == (0, None)  # a dead run trains nothing
    assert "run the same command again" in invoke("status", tmp_path).output
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "changes", [{"studies": [{"batch_size": "x"}]}, {"studies": 3}, {"steps_per_s": "fast"}, {"failures": []}]
)
def test_a_damaged_status_is_none(tmp_path, changes):
    (tmp_path / ".batchscale").mkdir()
    (tmp_path / ".batchscale" / "status.json").write_text(json.dumps(snapshot(**changes)))
    result = invoke("status", tmp_path)
    assert isinstance(result.exception, BatchscaleError)
    assert "Found no status" in str(result.exception)


def test_a_signal_while_the_command_still_loads_says_requeue(tmp_path):
    file = tmp_path / "experiment.toml"
    file.write_text(GOOD)
    words = [sys.executable, "-m", "batchscale", "run", str(file), "--out", str(tmp_path / "out")]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        while not catches(process.pid, signal.SIGTERM):
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == REQUEUE
    assert "Continue with" in said


def catches(process: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    status = Path(f"/proc/{process}/status").read_text()
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_status_tells_running_from_silent_by_lock_and_clock(tmp_path):
    folder = tmp_path / ".batchscale"
    folder.mkdir()
    with Path(folder / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "status.json").write_text(json.dumps(snapshot(written_at=time.time())))
        assert json.loads(invoke("status", tmp_path, "--json").output)["state"] == "running"
        (folder / "status.json").write_text(json.dumps(snapshot(written_at=1_700_000_000)))
        found = json.loads(invoke("status", tmp_path, "--json").output)
        assert (found["state"], found["heard_at"]) == ("silent", "2023-11-14T22:13:20+00:00")
        assert "not responding since " in invoke("status", tmp_path).output


def test_a_run_ends_with_the_sentences_of_analyze(tmp_path):
    law = {size: 1000 * (1 + 64 / size) for size in (1, 4, 16, 64, 256, 1024)}
    root = write_tree(tmp_path, curve_studies(law))
    name, goal = WorkloadName("toy", "net", "sgd"), Goal("val/error", 0.1)
    said = describe_regimes(root, name, goal)
    assert said.splitlines() == list(answer_sentences(analyze(read_tree(root), name, goal)))
    assert "(90 % intervals" not in said
    assert "In brackets: 90 % intervals" in said


def test_a_run_of_points_to_be_trusted_less_says_so_after_the_advice(tmp_path):
    root = write_tree(tmp_path, curve_studies({1: 60, 4: 20, 16: 20}, factors=(1.0,)))
    said = describe_regimes(root, WorkloadName("toy", "net", "sgd"), Goal("val/error", 0.1))
    doubt = "Doubt: more trials at batch size 1, 4 and 16 would likely move the answer (goal reached by 1 of 1)."
    assert said.splitlines().index(doubt) == 3  # two sentences of advice and the critical batch size


QUADRATIC = """
goal = "val/loss < 0.5"
batch_sizes = [4, 16]
trials = 2
search = { repeats = 1 }
budget = { steps = 40 }
evaluation = { count = 4 }
[workload]
dataset = "noisy_quadratic"
model = "quadratic"
optimizer = "sgd"
"""


def test_a_quiet_run_prints_a_curve_that_fit_reads_and_json_is_one_object(tmp_path):
    file, out = tmp_path / "experiment.toml", tmp_path / "out"
    file.write_text(QUADRATIC)
    quiet = CliRunner().invoke(make_app(), ["run", str(file), "--out", str(out), "--runner", "inline", "-q"])
    assert quiet.exit_code == 0
    assert quiet.stderr == ""
    curve = tmp_path / "curve.csv"
    curve.write_text(quiet.stdout)
    told = json.loads(invoke("run", file, "--out", out, "--json").stdout)
    measured = {row["batch_size"]: row["steps"] for row in told["curve"]}
    assert [(row["batch_size"], row["steps"]) for row in read_curve(curve).to_dicts()] == list(measured.items())
    assert (told["version"], told["records"], told["given_up"]) == (1, str(out), 0)
    assert (
        told["sentences"]
        == describe_regimes(out, WorkloadName.parse(told["workload"]), Goal.parse(told["goal"])).splitlines()
    )
    lines = invoke("status", out, "--watch").stdout.splitlines()
    assert lines[0].startswith("finished: noisy_quadratic/quadratic/sgd, goal val/loss < 0.5")
    assert (
        sum(line.startswith("batch size 4: goal") or line.startswith("batch size 4: the goal") for line in lines) == 1
    )
    watched = [json.loads(line) for line in invoke("status", out, "--watch", "--json").stdout.splitlines()]
    assert [found["state"] for found in watched] == ["finished"]


DIVERGING = """
goal = "val/loss < 0.05"
batch_sizes = [16]
trials = 2
workload = "noisy_quadratic/quadratic/sgd"
[budget]
steps = 400
[search]
repeats = 0
max_attempts = 3
[search.space.learning_rate]
scale = "LOG_SCALE"
min_value = 1e3
max_value = 1e4
"""


def test_a_run_whose_trials_all_diverged_says_that_the_space_is_wrong(tmp_path):
    file = tmp_path / "experiment.toml"
    file.write_text(DIVERGING)
    result = invoke("run", file, "--out", tmp_path / "out", "--runner", "inline", "-q")
    assert isinstance(result.exception, BatchscaleError), result.output
    assert "At batch size 16 all 3 trials diverged" in str(result.exception)
    assert "learning_rate 1000 to 10000" in str(result.exception)
    assert len(list((tmp_path / "out").rglob("metadata.json"))) == 3


def test_one_batch_size_that_diverges_is_named_and_the_others_count(tmp_path):
    file = tmp_path / "experiment.toml"
    more = '\n[search.per_batch_size.4.learning_rate]\nscale = "LOG_SCALE"\nmin_value = 0.01\nmax_value = 0.1\n'
    file.write_text(DIVERGING.replace("[16]", "[4, 16]") + more)
    result = invoke("run", file, "--out", tmp_path / "out", "--runner", "inline", "-q")
    assert result.exit_code == 0, result.output
    assert "At batch size 16 all 3 trials diverged" in result.stderr


def test_the_ray_address_is_the_option_or_rays_own_variable(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert find_ray_address("ray", None) == "auto"
    assert find_ray_address("local", None) is None
    assert find_ray_address("ray", "auto") == "auto"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert find_ray_address("ray", None) == "10.0.0.1:6379"
    assert find_ray_address("ray", "ray://h:1") == "ray://h:1"
    assert find_ray_address("local", None) is None
    with pytest.raises(RunError, match="--ray-address needs --runner ray"):
        find_ray_address("local", "auto")


@pytest.mark.parametrize(
    ("plan", "place"), [(RayPlan(), "checkpoints on nodes that see"), (RayPlan(checkpoints="s3://b/x"), "in s3://b/x")]
)
def test_the_place_of_states_of_a_lost_node_is_printed_before_the_run(plan, place, tmp_path, capsys):
    explain_lost_nodes(RunSettings("ray", ray_address="auto"), plan, tmp_path)
    text = capsys.readouterr().err
    assert place in text
    assert "trained again from their seed" in text
    explain_lost_nodes(RunSettings("local"), plan, tmp_path)
    assert capsys.readouterr().err == ""
