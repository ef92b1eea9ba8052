"""Only workers that were given a trial are told to let go of it."""

from protocol_fakes import fake_study

from batchscale.study.trial import TrialTask
from batchscale.workers.holders import Holders
from batchscale.workers.runner import Job

STUDY = fake_study()
SIZE = STUDY.batch_size
THERE = {"a", "b", "c"}


def note(holders, worker, *trial_ids):
    holders.note(worker, Job(0, STUDY, tuple(TrialTask(one, {}, 1, 10) for one in trial_ids)))


def test_each_worker_is_told_of_its_own_trials():
    holders = Holders()
    note(holders, "a", 1, 2)
    note(holders, "b", 3)
    assert holders.release(SIZE, [1, 3], THERE) == {"a": [1], "b": [3]}


def test_a_trial_that_moved_is_let_go_by_both():
    holders = Holders()
    note(holders, "a", 1)
    note(holders, "b", 1)
    told = holders.release(SIZE, [1], THERE)
    assert told == {"a": [1], "b": [1]}


def test_a_worker_that_has_gone_is_told_nothing_and_those_that_know_the_study_clear_up():
    holders = Holders()
    note(holders, "gone", 1)
    note(holders, "a", 2)
    assert holders.release(SIZE, [1], THERE) == {"a": [1]}


def test_a_trial_of_an_earlier_run_is_the_business_of_all_that_know_the_study():
    holders = Holders()
    note(holders, "a", 1)
    note(holders, "b", 2)
    assert holders.release(SIZE, [7], THERE) == {"a": [7], "b": [7]}


def test_a_study_is_let_go_by_those_that_know_it_and_then_by_nobody():
    holders = Holders()
    note(holders, "a", 1)
    holders.release(SIZE, [1], THERE)
    assert holders.release_study(SIZE + 1, THERE) == []
    assert holders.release_study(SIZE, THERE) == ["a"]
    assert holders.release_study(SIZE, THERE) == []
