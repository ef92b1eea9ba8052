"""The engine's promises to the layer that runs studies."""

import numpy as np

from batchscale.training.study_engine import TrialTask


def task(trial_id=1, until=40, learning_rate=0.1, seed=None, from_step=-1):
    seed = trial_id if seed is None else seed
    return TrialTask(trial_id, {"learning_rate": learning_rate, "momentum": 0.9}, seed, until, from_step)


def test_a_trial_learns_and_is_measured_at_the_evaluation_steps(toy, engine_of):
    (progress,) = engine_of(toy).advance([task()])
    assert [step for step, _ in progress.rows] == [0, 10, 20, 30, 40]
    assert progress.step == 40
    assert progress.diverged_at is None
    first, last = progress.rows[0][1], progress.rows[-1][1]
    assert last["train/cross_entropy_error"] < 0.5 * first["train/cross_entropy_error"]


def test_going_on_in_pieces_gives_the_bits_of_one_go(toy, engine_of):
    (whole,) = engine_of(toy).advance([task()])
    engine = engine_of(toy)
    rows = []
    for before, until in ((-1, 3), (3, 17), (17, 40)):
        (piece,) = engine.advance([task(until=until, from_step=before)])
        rows += piece.rows
    assert tuple(rows) == whole.rows


def test_a_population_gives_what_each_trial_gives_alone(toy, engine_of):
    tasks = [task(i, learning_rate=0.02 * i) for i in range(1, 6)]
    together = engine_of(toy, population=3).advance(tasks)
    for one, progress in zip(tasks, together, strict=True):
        (alone,) = engine_of(toy).advance([one])
        assert [step for step, _ in progress.rows] == [step for step, _ in alone.rows]
        for (_, a), (_, b) in zip(progress.rows, alone.rows, strict=True):
            # float32 sums in another order over 40 steps of a smooth problem
            np.testing.assert_allclose(list(a.values()), list(b.values()), rtol=2e-5, atol=1e-6)


def test_neighbours_do_not_change_a_bit_of_a_trial(toy, engine_of):
    (lonely,) = engine_of(toy, population=3).advance([task(1)])
    crowd = engine_of(toy, population=3).advance([task(2), task(3, learning_rate=1e9), task(1), task(4)])
    assert crowd[2].rows == lonely.rows


def test_a_diverging_trial_is_flagged_at_its_step_and_leaves_its_neighbours_alone(toy, engine_of):
    (alone,) = engine_of(toy, population=2).advance([task(1)])
    wild, calm = engine_of(toy, population=2).advance([task(7, learning_rate=1e30), task(1)])
    assert wild.diverged_at is not None
    assert 1 <= wild.diverged_at <= 3
    assert wild.step == wild.diverged_at
    assert [step for step, _ in wild.rows] == [0]
    assert calm.rows == alone.rows


def test_resumed_from_a_checkpoint_equals_uninterrupted(toy, engine_of, tmp_path):
    (whole,) = engine_of(toy).advance([task()])
    calls = iter([False, False, True])
    first = engine_of(toy, checkpoint_dir=tmp_path / "kept")
    (part,) = first.advance([task()], should_stop=lambda: next(calls))
    assert 0 < part.step < 40
    second = engine_of(toy, checkpoint_dir=tmp_path / "kept")
    assert second.restore(task()) == part.step
    (rest,) = second.advance([task()])
    assert rest.rows == whole.rows
    second.forget(1)
    assert not (tmp_path / "kept" / "1").exists()
