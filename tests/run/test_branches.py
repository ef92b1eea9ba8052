"""A whole experiment whose measurements are the ends of branches: raced, extended, killed, on workers and alone."""

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from study_fakes import read_studies, read_values
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import RunError, SpecError
from batchscale.records.check.tree import check_tree
from batchscale.run.loop import RunResult
from batchscale.run.preflight import make_checked_plan
from batchscale.run.session import RunSettings, run_plan
from batchscale.spec.file import parse_experiment

EXPERIMENT = """
goal = "val/loss < 0.15"
batch_sizes = [4, 16]
trials = 6
stop = "race"
[workload]
dataset = "noisy_quadratic"
model = "quadratic"
optimizer = "momentum"
schedule = "constant"
[budget]
steps = 300
[evaluation]
count = 8
spacing = "log"
start = 0.1
examples = { train = 0, val = 1, test = 0 }
[branches]
decay = 0.3
[search]
repeats = 0
[search.space]
learning_rate = { type = "DOUBLE", scale = "LOG_SCALE", min_value = 0.05, max_value = 1.0 }
momentum = { type = "DOUBLE", min_value = 0.0, max_value = 0.9 }
"""


def make_plan(text: str = EXPERIMENT):
    return make_checked_plan(parse_experiment(text), None)


def run(root: Path, text: str = EXPERIMENT, **settings) -> dict:
    assert (
        run_plan(make_plan(text), root, RunSettings(**({"runner": "inline"} | settings))).result is RunResult.FINISHED
    )
    assert not check_tree(root)
    return read_values(root)


def steps_of(root: Path, study: str, trial_id: int) -> list[int]:
    with (root / study / str(trial_id) / "measurements.csv").open() as file:
        return [int(row["step"]) for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def raced(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("raced")
    run(root)
    return root


def test_a_race_of_branches_ends_where_the_first_branch_reaches_the_goal(raced, tmp_path):
    whole = run(tmp_path / "whole", EXPERIMENT.replace('"race"', '"budget"'))
    values = read_values(raced)
    for size in (4, 16):
        study = f"noisy_quadratic/quadratic/momentum/{size}"
        first = min(t["own"]["reached_at"] for (s, _), t in whole.items() if s == study and "reached_at" in t["own"])
        steps = {trial_id: t["steps"] for (s, trial_id), t in values.items() if s == study}
        assert set(steps.values()) == {first}
        for trial_id in steps:  # what the race measured is what the whole trials have
            cut = (raced / study / str(trial_id) / "measurements.csv").read_text()
            assert (tmp_path / "whole" / study / str(trial_id) / "measurements.csv").read_text().startswith(cut)


def test_the_study_says_where_each_branch_left_its_trunk(raced):
    for size, study in read_studies(raced).items():
        branches = study["batchscale"]["branches"]
        measured = max((steps_of(raced, s, n) for s, n in read_values(raced) if s.endswith(f"/{size}")), key=len)
        assert [0, *(end for _, end in branches)][: len(measured)] == measured
        assert all(start == end - round(0.3 * end) for start, end in branches)
        assert branches[-1][1] == 300


def test_workers_and_a_longer_budget_give_the_same_records(raced, tmp_path):
    budget = EXPERIMENT.replace('"race"', '"budget"').replace("trials = 6", "trials = 2")
    assert run(tmp_path / "workers", runner="local", workers=2) == read_values(raced)
    run(tmp_path / "grown", budget.replace("steps = 300", "steps = 150"))
    grown = run(tmp_path / "grown", budget)
    fresh = run(tmp_path / "fresh", budget)
    last = {key: trial["own"]["best"] for key, trial in fresh.items()}
    for (study, trial_id), trial in grown.items():
        assert trial["steps"] == 300
        rows = (tmp_path / "grown" / study / str(trial_id) / "measurements.csv").read_text().splitlines()
        assert (
            rows[-1] == (tmp_path / "fresh" / study / str(trial_id) / "measurements.csv").read_text().splitlines()[-1]
        )
    assert last.keys() == grown.keys()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_run_that_is_killed_again_and_again_gives_the_same_records(tmp_path):
    slow = EXPERIMENT.replace("steps = 300", "steps = 100_000").replace("trials = 6", "trials = 3")
    slow = slow.replace('"race"', '"budget"').replace("[4, 16]", "[4]")
    (tmp_path / "slow.toml").write_text(slow)
    words = [sys.executable, "-m", "batchscale", "run", str(tmp_path / "slow.toml"), "--quiet", "--workers", "1"]
    kills = 0
    for seconds in (10, 16, 22, 1000):
        with subprocess.Popen([*words, "--out", str(tmp_path / "killed")], stdout=subprocess.DEVNULL) as process:
            try:
                process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM if kills % 2 else signal.SIGKILL)
                kills += 1
        if process.returncode == 0:
            break
    assert process.returncode == 0
    assert read_values(tmp_path / "killed") == run(tmp_path / "whole", slow), f"after {kills} kills"


def test_validate_says_what_is_measured(tmp_path):
    (tmp_path / "both.toml").write_text(EXPERIMENT + '[averaging]\nhalf_life = [8, 64.5]\nunit = "examples"\n')
    answer = CliRunner().invoke(make_app(), ["validate", str(tmp_path / "both.toml")])
    assert answer.exit_code == 0, answer.output
    assert "measured  averages of the weights, with half-lives of 8, 64.5 examples" in answer.stdout
    assert "measured  branches, of which each anneals over the last 0.3 of its steps (linear)" in answer.stdout


def test_the_plan_counts_the_steps_of_all_branches():
    study = make_plan().studies[0]
    pairs = study.branches.pairs(study.evaluation_steps)
    assert study.trial_steps == 6 * (pairs[-1][0] + sum(end - start for start, end in pairs))
    assert len(study.evaluation_steps) == 10


def last(output: str) -> dict:
    return next(row for row in map(json.loads, reversed(output.splitlines())) if row.get("step") == 60)


def test_a_trial_alone_is_the_end_of_its_last_branch(tmp_path):
    (tmp_path / "branches.toml").write_text(EXPERIMENT)
    words = f"train {tmp_path}/branches.toml -b 4 --steps 60 --set learning_rate=0.3 --set momentum=0.5 --json"
    answer = CliRunner().invoke(make_app(), words.split())
    assert answer.exit_code == 0, answer.output
    points = "{ schedule_steps = [0, 42, 60], schedule_factors = [1, 1, 0] }"
    points = f'schedule = "piecewise_linear"\noptimizer_options = {points}'
    alone = EXPERIMENT.replace('schedule = "constant"', points).replace("[branches]\ndecay = 0.3\n", "")
    (tmp_path / "alone.toml").write_text(alone)
    other = CliRunner().invoke(make_app(), words.replace("branches.toml", "alone.toml").split())
    assert other.exit_code == 0, other.output

    names = ("step", "val/loss")
    assert [last(answer.stdout).get(name) for name in names] == [last(other.stdout).get(name) for name in names]


def test_a_trunk_may_warm_up_under_set(tmp_path):
    (tmp_path / "branches.toml").write_text(EXPERIMENT.replace('"constant"', '"warmup"'))
    words = f"train {tmp_path}/branches.toml -b 4 --steps 60 --set learning_rate=0.3 --set momentum=0.5 --json"
    answer = CliRunner().invoke(make_app(), [*words.split(), "--set", "warmup_steps=10"])
    assert answer.exit_code == 0, answer.output
    points = "{ schedule_steps = [0, 9, 42, 60], schedule_factors = [0.1, 1, 1, 0] }"
    points = f'schedule = "piecewise_linear"\noptimizer_options = {points}'
    alone = EXPERIMENT.replace('schedule = "constant"', points).replace("[branches]\ndecay = 0.3\n", "")
    (tmp_path / "alone.toml").write_text(alone)
    other = CliRunner().invoke(make_app(), words.replace("branches.toml", "alone.toml").split())
    assert other.exit_code == 0, other.output
    # the same rates by another formula: sixty steps of float32
    assert last(answer.stdout)["val/loss"] == pytest.approx(last(other.stdout)["val/loss"], rel=1e-4)
    refused = CliRunner().invoke(make_app(), [*words.split(), "--set", "learning_rate_decay_steps=10"])
    assert refused.exit_code != 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("decay = 0.3", "decay_steps = 40"),
            "branches.decay_steps must not exceed the steps of the first branch. Found 40",
        ),
        (("decay = 0.3", "decay = 0"), "branches.decay"),
        (("decay = 0.3", "decay = 1.5"), "branches.decay"),
        (("decay = 0.3", "decay = 0.5\ndecay_steps = 5"), "give one of decay and decay_steps"),
        (("decay = 0.3", "end_factor = 1"), "branches.end_factor"),
        (("decay = 0.3", 'shape = "steep"'), "branches.shape"),
        (('schedule = "constant"', 'schedule = "linear"'), "the learning rate of the trunk must not decay by itself"),
    ],
)
def test_branches_that_cannot_be_trained_are_refused(change, message):
    with pytest.raises(SpecError, match=message):
        make_plan(EXPERIMENT.replace(*change))


def test_a_folder_keeps_its_branches(raced):
    with pytest.raises(RunError, match=r"branches.decay: 0.3 recorded, 0.2 requested"):
        run(raced, EXPERIMENT.replace("decay = 0.3", "decay = 0.2"))
