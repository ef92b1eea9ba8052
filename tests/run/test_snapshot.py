"""What is known of a run while it goes on: what workers do, new searches, divergences, and how long it may take."""

import json
import time
from dataclasses import replace

import pytest
from protocol_fakes import fake_space, read_studies, run_fake

from batchscale.run.run_state import SILENT_AFTER_S, RunState, find_state
from batchscale.run.snapshot import Snapshot, WorkerSnapshot, read_snapshot
from batchscale.run.time_left import StudyWork, estimate_time_left
from batchscale.run.watch import Watch
from batchscale.spec.experiment import SearchPlan
from batchscale.study.stop_rules import find_rule
from batchscale.study.tasks import Activity
from batchscale.workers.runner import WorkerActivity


def doing(activity: Activity, step: int = 0, trials: tuple[int, ...] = (1,), worker: str = "0") -> WorkerActivity:
    return WorkerActivity(worker, activity, 8, trials, step)


def test_a_slow_first_job_has_a_rate_long_before_it_is_answered():
    watch = Watch()
    watch.hear(doing(Activity.LOADING), 0.0)
    watch.hear(doing(Activity.COMPILING), 5.0)
    assert watch.step_s(8) is None
    watch.hear(doing(Activity.TRAINING), 65.0)
    assert (watch.steps(8), watch.step_s(8)) == (0, None)
    watch.hear(doing(Activity.TRAINING, 3), 125.0)
    assert (watch.steps(8), watch.step_s(8)) == (3, 20.0)  # compiling is not counted
    assert watch.flights["0"].since_s == 65.0
    watch.hear(doing(Activity.TRAINING, 1), 145.0)  # the next trial's turn: what it had before is not known
    assert (watch.steps(8), watch.steps(64)) == (3, 0)
    watch.land("0")
    assert (watch.steps(8), watch.step_s(8)) == (0, None)
    watch.hear(doing(Activity.TRAINING, 5), 150.0)  # the same trials again, in the next job
    assert watch.steps(8) == 0


def test_a_worker_that_is_gone_does_nothing():
    watch = Watch()
    watch.hear(doing(Activity.TRAINING), 0.0)
    watch.hear(doing(Activity.TRAINING, worker="1"), 0.0)
    watch.keep_workers({"1"})
    assert list(watch.flights) == ["1"]


def test_time_left_is_the_work_shared_but_no_trial_is():
    works = [StudyWork(8, 1000, 50, 0.01), StudyWork(64, 100, 100, 0.5)]
    found = estimate_time_left(works, 2, find_rule("budget"))
    assert found is not None
    assert found.seconds == pytest.approx(max((10 + 50) / 2, 50))
    assert found.assumes == ("no study is searched again",)
    assert estimate_time_left(works, 1, find_rule("race")).assumes[0] == "no further trial reaches the goal"
    assert estimate_time_left([StudyWork(8, 10, 10, None)], 1, find_rule("race")) is None


def test_batch_sizes_that_were_not_timed_are_guessed_on_the_safe_side_and_it_is_said():
    works = [StudyWork(4, 100, 1, None), StudyWork(16, 0, 0, 0.1), StudyWork(64, 100, 1, None)]
    found = estimate_time_left(works, 1, find_rule("budget"), may_repeat=False)
    assert found is not None
    assert found.seconds == pytest.approx(100 * 0.1 + 100 * 0.1 * 4)  # as much per step below, per example above
    assert found.assumes == ("2 batch sizes that were not timed cost what the nearest timed one does",)


def test_a_status_says_why_and_where_a_study_is_searched_again(tmp_path):
    run_fake(tmp_path, space=fake_space(0.001, 0.01), search=SearchPlan(repeats=2))
    found = read_snapshot(tmp_path)
    assert found is not None
    studies = read_studies(tmp_path)
    assert sum(len(study.new_searches) for study in found.studies) > 0
    for study in found.studies:
        spaces = [search["space"] for search in studies[study.batch_size]["batchscale"]["searches"]]
        assert len(study.new_searches) == len(spaces) - 1
        for new, before, after in zip(study.new_searches, spaces, spaces[1:], strict=False):
            assert new.reason
            for change in new.changes:
                ends = [(s[change.parameter]["min_value"], s[change.parameter]["max_value"]) for s in (before, after)]
                assert ends == [change.before, change.after]
    assert Snapshot.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_of_a_run_that_was_stopped_nothing_is_in_training(tmp_path):
    finished = run_fake(tmp_path).snapshot
    studies = (replace(finished.studies[0], running=3), *finished.studies[1:])
    left = replace(finished, finished=False, studies=studies, time_left_s=9.0, doing=(WorkerSnapshot("0", "training"),))
    assert find_state(finished, running=True) == find_state(finished, running=False) == (finished, RunState.FINISHED)
    assert find_state(left, running=True) == (left, RunState.RUNNING)
    for seconds in (-2 * SILENT_AFTER_S, 2 * SILENT_AFTER_S):  # a clock that was set back makes nobody alive
        away = replace(left, written_at=time.time() + seconds)
        assert find_state(away, running=True) == (away, RunState.SILENT)
    now, state = find_state(left, running=False)
    assert (state, now.time_left_s, now.doing) == (RunState.STOPPED, None, ())
    assert [study.running for study in now.studies] == [0] * len(studies)


def test_divergences_of_a_race_are_counted_before_they_are_recorded(tmp_path):
    outcome = run_fake(tmp_path, space=fake_space(0.001, 30.0))
    assert outcome.snapshot.studies
    for study in outcome.snapshot.studies:
        assert study.diverged >= study.infeasible > 0
