"""Single trials in a folder of their own, written by the recorder that writes all studies."""

import json
import shutil
from dataclasses import replace

import pytest
from study_fakes import fake_experiment, fake_study, read_values

from batchscale.errors import RunError
from batchscale.records.model import Status
from batchscale.run.single_study import Resume, SingleStudy, TrialValues
from batchscale.run.single_trial import extend_to
from batchscale.spec.experiment import StopRule
from batchscale.spec.space import ParameterConfig, ParameterType, SearchSpace
from batchscale.study.study import open_study_run
from batchscale.study.trial import TrialOutcome, TrialProgress

VALUES = TrialValues({"learning_rate": 0.1}, seed=7, workload="plain")


def single(rate: float = 0.1, **changes):
    space = SearchSpace((ParameterConfig("learning_rate", ParameterType.DISCRETE, feasible_points=(rate,)),))
    return replace(fake_study(stop=StopRule.BUDGET), space=space, seed=7, **changes)


def rows(*steps: int):
    return tuple((step, {"val/error": 1 / (1 + step)}) for step in steps)


def train(root, *steps: int, rate: float = 0.1, resume: Resume = Resume.IF_THERE) -> int:
    values = replace(VALUES, parameters={"learning_rate": rate})
    with SingleStudy(root, single(rate), values, resume) as records:
        records.begin()
        records.add(TrialProgress(records.trial_id, rows(*steps), steps[-1], None, {}), 1.5, None)
        records.commit(TrialOutcome(Status.COMPLETE, steps[-1], "budget"))
        return records.trial_id


def begin(root, *steps: int, values=VALUES) -> None:
    """A trial whose process was killed after these measurements."""
    with SingleStudy(root, single(), values) as records:
        records.begin()
        if steps:
            records.add(TrialProgress(records.trial_id, rows(*steps), steps[-1], None, {}), 0.1, None)


def find(root, values=VALUES, resume=Resume.IF_THERE, **changes):
    """The trial that the folder has for these values: its id, its last measured step, and the step of its record."""
    with SingleStudy(root, single(**changes), values, resume) as records:
        return records.trial_id, records.summary.step, records.summary.recorded


def test_trials_in_one_folder_have_the_facts_that_every_trial_has(tmp_path):
    assert [train(tmp_path, 0, 10, rate=0.1), train(tmp_path, 0, 20, rate=0.2)] == [1, 2]
    trials = read_values(tmp_path)
    assert [trial["steps"] for trial in trials.values()] == [10, 20]
    own = trials["fake/model/sgd/1", 2]["own"]
    assert {"seed": 7, "search": 1, "point": 0, "stop_reason": "budget"}.items() <= own.items()
    assert own["best"] == pytest.approx(1 / 21)
    study = json.loads((tmp_path / "fake" / "model" / "sgd" / "1" / "study.json").read_text())
    assert study["batchscale"]["code_version"]
    assert study["batchscale"]["seed"] == 7


def test_the_same_values_find_the_trial_and_others_make_a_new_one(tmp_path):
    assert find(tmp_path) == (1, -1, None)
    train(tmp_path, 0, 10)
    assert find(tmp_path) == find(tmp_path, resume=Resume.REQUIRED) == (1, 10, 10)
    for other in ({"parameters": {"learning_rate": 0.2}}, {"seed": 8}, {"workload": "bfloat16"}):
        assert find(tmp_path, replace(VALUES, **other)) == (2, -1, None)
        with pytest.raises(RunError, match=r"Found learning_rate .*; trial 1 there has learning_rate 0\.1, seed 7"):
            find(tmp_path, replace(VALUES, **other), Resume.REQUIRED)
    assert find(tmp_path, resume=Resume.NEVER) == (2, -1, None)
    assert train(tmp_path, 20) == 1
    (trial,) = read_values(tmp_path).values()
    assert [line.split(",")[0] for line in trial["rows"].splitlines()] == ["step", "0", "10", "20"]


@pytest.mark.parametrize("steps", [(), (0,), (0, 10)])
def test_a_trial_that_was_killed_is_found_by_its_values_whatever_it_had_measured(tmp_path, steps):
    begin(tmp_path, *steps)
    assert find(tmp_path) == find(tmp_path, resume=Resume.REQUIRED) == (1, max([-1, *steps]), None)
    other = replace(VALUES, seed=8)
    begin(tmp_path, 0, values=other)
    assert find(tmp_path, other) == (2, 0, None)
    assert find(tmp_path) == (1, max([-1, *steps]), None)
    with SingleStudy(tmp_path, single(), replace(VALUES, seed=9)) as records:
        assert {number: str(values) for number, values in records.unfinished.items()} == {
            1: "learning_rate 0.1, seed 7",
            2: "learning_rate 0.1, seed 8",
        }


def test_of_two_trials_with_the_same_values_the_unfinished_one_continues(tmp_path):
    train(tmp_path, 0, 10)
    with SingleStudy(tmp_path, single(), VALUES, Resume.NEVER) as records:
        records.begin()
    assert find(tmp_path) == (2, -1, None)


def test_a_refused_attempt_leaves_the_folder_as_it_was(tmp_path):
    with pytest.raises(RunError, match="Found none in"):
        find(tmp_path / "records", resume=Resume.REQUIRED)
    assert not list(tmp_path.iterdir())
    begin(tmp_path, 0, 10)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock"}
    with pytest.raises(RunError):
        find(tmp_path, replace(VALUES, seed=8), Resume.REQUIRED)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock"}


def test_an_earlier_end_cuts_off_nothing_that_is_recorded(tmp_path):
    train(tmp_path, 0, 10, 20)
    goal = replace(single().goal, value=0.1)  # the measurement at step 10 is 1/11
    with SingleStudy(tmp_path, single(goal=goal, stop=StopRule.GOAL), VALUES) as records:
        assert (records.summary.reached_at, records.summary.recorded) == (10, 20)
        records.commit(TrialOutcome(Status.COMPLETE, 10, "goal"))
    (trial,) = read_values(tmp_path).values()
    assert trial["steps"] == 20


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"parameters": 3, "seed": 7}', "3", "[" * 10**5])
def test_a_trial_whose_values_cannot_be_read_continues_only_if_that_is_demanded(tmp_path, text):
    begin(tmp_path, 0, 10)
    next(tmp_path.rglob("chosen-*")).write_text(text)
    assert find(tmp_path) == (2, -1, None)
    assert find(tmp_path, resume=Resume.REQUIRED) == (1, 10, None)


def test_a_record_without_its_working_files_is_found_by_its_values(tmp_path):
    train(tmp_path, 0, 10)
    shutil.rmtree(tmp_path / ".batchscale")
    assert find(tmp_path) == (1, 10, 10)


def test_no_single_trial_is_added_to_a_study_of_a_run(tmp_path):
    open_study_run(tmp_path, fake_study(), fake_experiment()).close()
    before = (tmp_path / "fake" / "model" / "sgd" / "1" / "study.json").read_bytes()
    with pytest.raises(RunError, match="another --out"):
        SingleStudy(tmp_path, single(), VALUES)
    assert (tmp_path / "fake" / "model" / "sgd" / "1" / "study.json").read_bytes() == before


def test_a_smaller_budget_cuts_nothing_off():
    assert extend_to(single(), 10) == single()
    longer = extend_to(single(), 999)
    assert (longer.train_steps, longer.evaluation_steps[-1]) == (999, 999)
