"""Messages about trials go only to the workers that received them."""

from study_fakes import fake_study

from batchscale.study.trial import TrialTask
from batchscale.workers.process_runner import TrialLocations
from batchscale.workers.runner import Job

STUDY = fake_study()
SIZE = STUDY.batch_size
ALIVE = {"a", "b", "c"}


def add(locations, worker, *trial_ids):
    locations.add(worker, Job(0, STUDY, tuple(TrialTask(trial_id, {}, 1, 10) for trial_id in trial_ids)))


def test_each_worker_gets_its_own_trials():
    locations = TrialLocations()
    add(locations, "a", 1, 2)
    add(locations, "b", 3)
    assert locations.remove(SIZE, [1, 3], ALIVE) == {"a": [1], "b": [3]}


def test_a_trial_that_moved_is_dropped_by_both():
    locations = TrialLocations()
    add(locations, "a", 1)
    add(locations, "b", 1)
    dropped = locations.remove(SIZE, [1], ALIVE)
    assert dropped == {"a": [1], "b": [1]}


def test_the_trial_of_a_worker_that_has_gone_is_dropped_by_all_workers_of_the_study():
    locations = TrialLocations()
    add(locations, "gone", 1)
    add(locations, "a", 2)
    assert locations.remove(SIZE, [1], ALIVE) == {"a": [1]}


def test_a_trial_of_an_earlier_run_is_dropped_by_all_workers_of_the_study():
    locations = TrialLocations()
    add(locations, "a", 1)
    add(locations, "b", 2)
    assert locations.remove(SIZE, [7], ALIVE) == {"a": [7], "b": [7]}


def test_a_study_is_dropped_once_by_its_workers():
    locations = TrialLocations()
    add(locations, "a", 1)
    locations.remove(SIZE, [1], ALIVE)
    assert locations.remove_study(SIZE + 1, ALIVE) == []
    assert locations.remove_study(SIZE, ALIVE) == ["a"]
    assert locations.remove_study(SIZE, ALIVE) == []
