"""Single trials in a folder of their own, written by the recorder that writes all studies."""

import json
from dataclasses import replace

import pytest
from study_fakes import fake_experiment, fake_study, read_values

from batchscale.errors import RunError
from batchscale.records.model import Status
from batchscale.run.single_trial import SingleStudy, extend_to
from batchscale.spec.experiment import StopRule
from batchscale.spec.space import ParameterConfig, ParameterType, SearchSpace
from batchscale.study.study import open_study_run
from batchscale.study.trial import TrialOutcome, TrialProgress, TrialTask

TASK = TrialTask(1, {"learning_rate": 0.1}, seed=7, until_step=20, from_step=-1)


def single(rate: float = 0.1, **changes):
    space = SearchSpace((ParameterConfig("learning_rate", ParameterType.DISCRETE, feasible_points=(rate,)),))
    return replace(fake_study(stop=StopRule.BUDGET), space=space, seed=7, **changes)


def rows(*steps: int):
    return tuple((step, {"val/error": 1 / (1 + step)}) for step in steps)


def train(root, *steps: int, rate: float = 0.1, resume: bool = False) -> int:
    with SingleStudy(root, single(rate), resume) as records:
        task = replace(TASK, trial_id=records.trial_id, parameters={"learning_rate": rate})
        records.begin(task)
        records.add(TrialProgress(records.trial_id, rows(*steps), steps[-1], None, {}), 1.5, None)
        records.commit(TrialOutcome(Status.COMPLETE, steps[-1], "budget"), task)
        return records.trial_id


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


def test_a_trial_goes_on_where_it_ended_and_only_if_it_is_the_same(tmp_path):
    train(tmp_path, 0, 10)
    with SingleStudy(tmp_path, single(), resume=True) as records:
        assert (records.trial_id, records.summary.step, records.summary.recorded) == (1, 10, 10)
        with pytest.raises(RunError, match="seed 7"):
            records.begin(replace(TASK, seed=8))
    train(tmp_path, 20, resume=True)
    (trial,) = read_values(tmp_path).values()
    assert [line.split(",")[0] for line in trial["rows"].splitlines()] == ["step", "0", "10", "20"]


def test_measurements_of_a_trial_that_was_stopped_are_there_for_the_next_process(tmp_path):
    with SingleStudy(tmp_path, single(), resume=False) as records:
        records.add(TrialProgress(1, rows(0, 10), 10, None, {}), 0.1, None)
    with SingleStudy(tmp_path, single(), resume=True) as records:
        assert (records.trial_id, records.summary.step, records.summary.recorded) == (1, 10, None)


def test_a_trial_that_was_stopped_goes_on_only_with_its_own_values_and_seed(tmp_path):
    with SingleStudy(tmp_path, single(), resume=False) as records:
        records.begin(TASK)
        records.add(TrialProgress(1, rows(0, 10), 10, None, {}), 0.1, None)
    with SingleStudy(tmp_path, single(), resume=True) as records:
        with pytest.raises(RunError, match=r"\{'learning_rate': 0\.1\} and seed 7\. Found \{'learning_rate': 0\.2\}"):
            records.begin(replace(TASK, parameters={"learning_rate": 0.2}))
        with pytest.raises(RunError, match="seed 8"):
            records.begin(replace(TASK, seed=8))
    train(tmp_path, 20, resume=True)
    (trial,) = read_values(tmp_path).values()
    assert [line.split(",")[0] for line in trial["rows"].splitlines()] == ["step", "0", "10", "20"]
    assert not list(tmp_path.rglob("chosen-*"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"parameters": 3, "seed": 7}'])
def test_a_trial_that_does_not_say_what_it_was_begun_with_goes_on(tmp_path, text):
    with SingleStudy(tmp_path, single(), resume=False) as records:
        records.begin(TASK)
        records.add(TrialProgress(1, rows(0, 10), 10, None, {}), 0.1, None)
    next(tmp_path.rglob("chosen-*")).write_text(text)
    assert train(tmp_path, 20, resume=True) == 1


def test_no_single_trial_is_added_to_a_study_of_a_run(tmp_path):
    open_study_run(tmp_path, fake_study(), fake_experiment()).close()
    before = (tmp_path / "fake" / "model" / "sgd" / "1" / "study.json").read_bytes()
    with pytest.raises(RunError, match="another --out"):
        SingleStudy(tmp_path, single(), resume=False)
    assert (tmp_path / "fake" / "model" / "sgd" / "1" / "study.json").read_bytes() == before


def test_a_smaller_budget_cuts_nothing_off():
    assert extend_to(single(), 10) == single()
    longer = extend_to(single(), 999)
    assert (longer.train_steps, longer.evaluation_steps[-1]) == (999, 999)
