"""Adaptive experiments on the fake engine: their answer, their records, and kills at any point."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from adaptive_fakes import B_CRIT, adaptive_plan, run_adaptive
from study_fakes import fake_experiment, fake_facts, read_studies, read_values

from batchscale.adaptive import rounds
from batchscale.adaptive.progress import read_step_time, study_costs
from batchscale.adaptive.rounds import next_plan, run_experiment
from batchscale.errors import RecordsError, RunError
from batchscale.records.metadata.columns import stored_choices
from batchscale.records.tree.read import read_tree
from batchscale.run.loop import RunResult
from batchscale.run.settings import RunSettings
from batchscale.run.status import read_status
from batchscale.spec.adaptive import Aim, ChoiceKind, CostUnit
from batchscale.spec.plan import make_plan

NAME = "fake/model/sgd"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The records of a run without a stop."""
    root = tmp_path_factory.mktemp("whole")
    assert run_adaptive(root).result is RunResult.FINISHED
    return root


def choices_of(root: Path):
    return stored_choices(read_tree(root).studies)


def stored(root: Path) -> dict[int, object]:
    """What study.json has of choices, trials and spaces, by batch size."""
    keys = ("choices", "trials", "searches", "budgets")
    return {size: {key: study["batchscale"].get(key) for key in keys} for size, study in read_studies(root).items()}


def test_the_interval_holds_the_truth_and_is_as_narrow_as_asked(whole):
    last = choices_of(whole)[-1]
    assert last.kind is ChoiceKind.STOP
    assert last.low < B_CRIT < last.high < 2 * last.low


def test_every_round_is_in_the_study_of_its_sizes(whole):
    choices, studies = choices_of(whole), read_studies(whole)
    assert [choice.round for choice in choices] == list(range(1, len(choices) + 1))
    assert choices[0].kind is ChoiceKind.START
    for size, study in studies.items():
        own = [choice["round"] for choice in study["batchscale"]["choices"]]
        assert own == [choice.round for choice in choices if size in choice.sizes]
    trials = {study["batchscale"]["trials"] for study in studies.values()}
    assert trials == {choices[-1].trials}  # all sizes have as many: they are compared with each other
    assert len(studies) < len(adaptive_plan().studies)


def test_the_status_lists_the_rounds_and_ends_as_finished(whole):
    status = read_status(whole)
    assert status.finished
    assert list(status.choices) == [str(choice) for choice in choices_of(whole)]


def test_a_finished_run_is_finished_and_trains_nothing_again(whole):
    before = read_values(whole), stored(whole)
    outcome = run_adaptive(whole)
    assert outcome.result is RunResult.FINISHED
    assert outcome.status.finished
    assert (read_values(whole), stored(whole)) == before
    assert next_plan(adaptive_plan(), whole) is None


class KilledError(BaseException):
    """Ends a run at once, as a kill would: nothing handles it."""


def test_a_run_killed_before_and_after_every_decision_chooses_the_same(whole, tmp_path, monkeypatch):
    """Every call that reads, decides or opens studies raises in turn; the records end as those of the whole run."""
    calls, kill_at = [0], [0]

    def dying(function):
        def call(*arguments, **options):
            calls[0] += 1
            if calls[0] == kill_at[0]:
                raise KilledError
            return function(*arguments, **options)

        return call

    from batchscale.run import session

    names = ((rounds, "read_progress"), (rounds, "next_round"), (session, "open_study_run"), (session, "write_plan"))
    for place, name in names:
        monkeypatch.setattr(place, name, dying(getattr(place, name)))
    kills = 0
    for kill_at[0] in (1, 3, 6, 8, 9, 17, 30, 0):
        calls[0] = 0
        try:
            run_adaptive(tmp_path)
        except KilledError:
            kills += 1
    assert kills >= 5
    assert stored(tmp_path) == stored(whole)
    assert read_values(tmp_path) == read_values(whole)


def test_a_stopped_run_continues_with_the_same_choices(whole, tmp_path):
    from batchscale.run.signals import StopFlag

    results = []
    for count in (1, 3, 40):
        seen = [0]
        with StopFlag() as flag:

            def show(_status, seen=seen, flag=flag, count=count):
                seen[0] += 1
                if seen[0] == count:
                    flag.set(signal.SIGTERM)

            results.append(run_adaptive(tmp_path, show=show, stop=flag).result)
    assert results[0] is RunResult.STOPPED
    assert run_adaptive(tmp_path).result is RunResult.FINISHED
    assert stored(tmp_path) == stored(whole)
    assert read_values(tmp_path) == read_values(whole)


@pytest.mark.slow
def test_random_kills_leave_the_choices_and_records_of_an_uninterrupted_run(whole, tmp_path):
    script = Path(__file__).parent / "adaptive_fakes.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    def start() -> subprocess.Popen:
        words = [sys.executable, str(script), str(tmp_path / "parts"), "sleep_s=0.0005"]
        return subprocess.Popen(words, env=environment, start_new_session=True)

    chance, kills = random.Random(7), 0
    for _ in range(8):
        driver = start()
        time.sleep(chance.uniform(1.0, 6.0))
        kills += driver.poll() is None
        driver.kill()
        driver.wait()
    assert start().wait(timeout=300) == 0
    assert kills >= 3
    assert stored(tmp_path / "parts") == stored(whole)
    assert read_values(tmp_path / "parts") == read_values(whole)


def test_a_budget_ends_the_run_and_a_larger_one_continues_it(whole, tmp_path):
    costs = study_costs(read_tree(whole), CostUnit.TRIAL_STEPS)
    first = round(0.4 * sum(costs.values()))
    run_adaptive(tmp_path, adaptive_plan(max_trial_steps=first))
    stopped = choices_of(tmp_path)[-1]
    assert stopped.kind is ChoiceKind.STOP
    assert "the budget of" in stopped.reason
    assert sum(study_costs(read_tree(tmp_path), CostUnit.TRIAL_STEPS).values()) < 1.5 * first
    run_adaptive(tmp_path)
    continued = choices_of(tmp_path)
    assert continued[stopped.round - 1] == stopped
    assert "narrower than a factor of 2" in continued[-1].reason


def test_with_fixed_sizes_only_trials_are_chosen_and_with_fixed_trials_only_sizes(tmp_path):
    from batchscale.spec.batch_sizes import BatchSizes

    sizes = BatchSizes((4, 16, 64, 256, 512))
    run_adaptive(tmp_path / "trials", adaptive_plan(chooses_sizes=False, factor=4.0, experiment={"batch_sizes": sizes}))
    assert set(read_studies(tmp_path / "trials")) == set(sizes.sizes)
    run_adaptive(tmp_path / "sizes", adaptive_plan(chooses_trials=False, factor=4.0))
    assert {study["batchscale"]["trials"] for study in read_studies(tmp_path / "sizes").values()} == {8}


def test_records_of_a_fixed_experiment_are_refused(tmp_path):
    settings = RunSettings("inline", engine="fake_engine:make_engine")
    fixed = make_plan(fake_experiment(), fake_facts())
    run_experiment(fixed, tmp_path, settings)
    before = read_values(tmp_path)
    with pytest.raises(RecordsError, match="must be those of an adaptive experiment"):
        run_adaptive(tmp_path)
    assert read_values(tmp_path) == before


def test_a_goal_out_of_reach_ends_the_run_with_its_reason(tmp_path):
    from batchscale.spec.durations import Budget, Unit

    outcome = run_adaptive(tmp_path, adaptive_plan(experiment={"budget": Budget(20, Unit.STEPS)}))
    assert outcome.result is RunResult.FINISHED
    assert "0 batch sizes of 4 reached the goal" in outcome.status.choices[-1]


def test_a_damaged_choice_is_named(whole, tmp_path):
    import shutil

    shutil.copytree(whole, tmp_path / "copy")
    file = next((tmp_path / "copy").rglob("study.json"))
    study = json.loads(file.read_text())
    study["batchscale"]["choices"][0]["trials"] = "many"
    study["batchscale"].pop("metadata_sha256", None)
    file.write_text(json.dumps(study))
    with pytest.raises(RunError, match=r"choices\[0\]\.trials is a whole number of at least 1\. Found 'many'"):
        run_adaptive(tmp_path / "copy")


def test_step_times_of_trials_give_the_fastest_size(whole):
    records = read_tree(whole)
    fixed, per_example = read_step_time(records, adaptive_plan().experiment) or (0.0, 0.0)
    assert fixed >= 0
    assert per_example >= 0
    assert fixed + per_example > 0
    assert Aim.FASTEST.label == "fastest batch size"
