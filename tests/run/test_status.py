"""The status of a run: activities of workers, new searches, divergences, and the time unfinished."""

import json
import time
from dataclasses import replace

from study_fakes import fake_space, read_studies, run_fake

from batchscale.run.activity import ActivityMonitor
from batchscale.run.status import NOT_RESPONDING_AFTER_S, RunState, RunStatus, WorkerStatus, find_state, read_status
from batchscale.spec.experiment import SearchPlan
from batchscale.study.trial import Activity
from batchscale.workers.runner import WorkerActivity


def doing(activity: Activity, step: int = 0, trials: tuple[int, ...] = (1,), worker: str = "0") -> WorkerActivity:
    return WorkerActivity(worker, activity, 8, trials, step)


def test_a_slow_first_job_has_a_rate_long_before_it_is_answered():
    monitor = ActivityMonitor()
    monitor.update(doing(Activity.LOADING), 0.0)
    monitor.update(doing(Activity.COMPILING), 5.0)
    assert monitor.progress_by_study() == {}
    monitor.update(doing(Activity.TRAINING), 65.0)
    assert monitor.progress_by_study() == {}
    monitor.update(doing(Activity.TRAINING, 3), 125.0)
    assert monitor.progress_by_study() == {8: (3, 60.0)}  # compiling is not counted
    assert monitor.jobs["0"].since_s == 65.0
    monitor.update(doing(Activity.TRAINING, 1), 145.0)  # the next trial's turn: its steps before are unknown
    assert monitor.progress_by_study() == {8: (3, 80.0)}
    monitor.finish("0")
    assert monitor.progress_by_study() == {}
    monitor.update(doing(Activity.TRAINING, 5), 150.0)  # the same trials again, in the next job
    assert monitor.progress_by_study() == {}


def test_a_worker_that_is_gone_does_nothing():
    monitor = ActivityMonitor()
    monitor.update(doing(Activity.TRAINING), 0.0)
    monitor.update(doing(Activity.TRAINING, worker="1"), 0.0)
    monitor.set_workers({"1"})
    assert list(monitor.jobs) == ["1"]


def test_a_status_says_why_and_where_a_study_is_searched_again(tmp_path):
    run_fake(tmp_path, space=fake_space(0.001, 0.01), search=SearchPlan(repeats=2))
    status = read_status(tmp_path)
    assert status is not None
    studies = read_studies(tmp_path)
    assert sum(len(study.new_searches) for study in status.studies) > 0
    for study in status.studies:
        spaces = [search["space"] for search in studies[study.batch_size]["batchscale"]["searches"]]
        assert len(study.new_searches) == len(spaces) - 1
        for new, before, after in zip(study.new_searches, spaces, spaces[1:], strict=False):
            assert new.reason
            for change in new.changes:
                ends = [(s[change.parameter]["min_value"], s[change.parameter]["max_value"]) for s in (before, after)]
                assert ends == [change.before, change.after]
    assert RunStatus.from_json(json.loads(json.dumps(status.to_json()))) == status


def test_of_a_run_that_was_stopped_nothing_is_in_training(tmp_path):
    finished = run_fake(tmp_path).status
    studies = (replace(finished.studies[0], running=3), *finished.studies[1:])
    unfinished = replace(
        finished, finished=False, studies=studies, time_left_s=9.0, doing=(WorkerStatus("0", "training"),)
    )
    assert find_state(finished, running=True) == find_state(finished, running=False) == (finished, RunState.FINISHED)
    assert find_state(unfinished, running=True) == (unfinished, RunState.RUNNING)
    # a clock that was set back makes nobody alive
    for seconds in (-2 * NOT_RESPONDING_AFTER_S, 2 * NOT_RESPONDING_AFTER_S):
        away = replace(unfinished, written_at=time.time() + seconds)
        assert find_state(away, running=True) == (away, RunState.NOT_RESPONDING)
    now, state = find_state(unfinished, running=False)
    assert (state, now.time_left_s, now.doing) == (RunState.STOPPED, None, ())
    assert [study.running for study in now.studies] == [0] * len(studies)


def test_divergences_of_a_race_are_counted_before_they_are_recorded(tmp_path):
    outcome = run_fake(tmp_path, space=fake_space(0.001, 30.0))
    assert outcome.status.studies
    for study in outcome.status.studies:
        assert study.diverged >= study.infeasible > 0
