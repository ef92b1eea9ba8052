"""The engine's promises to the layer that runs studies."""

import gc
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import psutil
import pytest

from batchscale.errors import SpecError
from batchscale.spec.goal import Goal
from batchscale.study.trial import Activity
from batchscale.training import programs, shared_programs, study_engine
from batchscale.training.compilation import compile_count
from batchscale.training.state import stream_keys
from batchscale.training.study_engine import TrialTask
from batchscale.workloads.models.nnx_model import in_precision

pytestmark = pytest.mark.usefixtures("shared_programs")


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
    (alone,) = engine_of(toy, population=3).advance([task(1)])
    wild, calm = engine_of(toy, population=3).advance([task(7, learning_rate=1e30), task(1)])
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
    second._programs.init = None  # nothing is begun from its seed
    (rest,) = second.advance([task()])
    assert rest.rows == whole.rows
    second.discard(1)
    assert not (tmp_path / "kept" / "1").exists()


def test_a_trial_that_lacks_a_measurement_behind_it_is_computed_again(toy, engine_of):
    engine = engine_of(toy)
    (whole,) = engine.advance([task()])
    del engine._population._trials[1].rows[whole.rows[1][0]]
    (again,) = engine.advance([task()])
    assert again.rows == whole.rows
    del engine._population._trials[1].rows[whole.rows[1][0]]
    (rest,) = engine.advance([task(from_step=whole.rows[1][0])])  # which is not asked for here
    assert rest.rows == whole.rows[2:]


def test_the_engine_says_what_it_does_and_compiles_first(toy, engine_of):
    engine, told = engine_of(toy), []
    engine.listen(lambda activity, step: told.append((activity, step)))
    engine.advance([task()])
    activities = [activity for activity, _ in told]
    assert activities[0] == Activity.COMPILING  # one program trains and measures
    assert Activity.TRAINING in activities[1:]
    assert set(activities[1:]) <= {Activity.TRAINING, Activity.EVALUATING}
    assert [step for _, step in told] == sorted(step for _, step in told)


def test_the_goal_ends_a_trial_at_its_first_evaluation_that_reaches_it(toy, engine_of):
    goal = Goal.parse("train/cross_entropy_error < 0.5")
    (whole,) = engine_of(toy).advance([task()])
    expected = next(step for step, values in whole.rows if goal.is_reached_by(values[goal.metric]))
    (stopped,) = engine_of(toy).advance([task()], goal=goal)
    assert stopped.step == expected < 40
    assert stopped.rows == tuple(row for row in whole.rows if row[0] <= expected)


def test_parameters_that_turn_infinite_are_seen_even_where_the_loss_does_not_show_it(toy, engine_of):
    def update(mp):
        def grow(grads, state, params=None):
            after = jnp.where(state == 4, jnp.inf, 0.0)
            return {
                name: jnp.zeros_like(leaf) + (after if name == "unused" else 0) for name, leaf in grads.items()
            }, state + 1

        return optax.GradientTransformation(lambda params: jnp.int32(0), grow)

    def init(key):
        params, state = toy.model.init(key)
        return params | {"unused": jnp.zeros((3, 2))}, state

    workload = replace(toy, model=replace(toy.model, init=init), make_update=update)
    (progress,) = engine_of(workload).advance([task()])
    assert progress.diverged_at == 5


def test_a_loss_beyond_the_multiple_of_its_start_is_divergence(toy, engine_of, monkeypatch):
    uphill = task(learning_rate=-0.02)
    (calm,) = engine_of(toy).advance([uphill])  # a thousand times its start
    monkeypatch.setattr(shared_programs, "DIVERGENCE_FACTOR", 3.0)
    monkeypatch.setattr(shared_programs, "_last", None)
    monkeypatch.setattr(study_engine, "Programs", programs.Programs)  # compiled with that: not to be shared
    (strict,) = engine_of(toy).advance([uphill])
    assert strict.diverged_at < (calm.diverged_at or 41)
    assert strict.rows == calm.rows[: len(strict.rows)]
    assert all(step < strict.diverged_at for step, _ in strict.rows)


def test_order_initialisation_and_dropout_have_their_own_streams():
    keys = [np.asarray(jax.random.key_data(key) if key.ndim == 0 else key) for key in stream_keys(jnp.uint32(5))]
    assert len({tuple(key) for key in keys}) == 3


def test_bfloat16_learns_too_and_keeps_float32_parameters(toy, engine_of):
    half = replace(toy, model=in_precision(toy.model, "bfloat16"))
    engine = engine_of(half)
    (progress,) = engine.advance([task()])
    assert progress.rows[-1][1]["train/cross_entropy_error"] < 0.5 * progress.rows[0][1]["train/cross_entropy_error"]
    assert {leaf.dtype for leaf in jax.tree.leaves(engine._population.member(1).params)} == {np.dtype(np.float32)}


def test_an_unknown_or_missing_metaparameter_is_refused(toy, engine_of):
    engine = engine_of(toy)
    with pytest.raises(SpecError, match="did you mean 'learning_rate'"):
        engine.advance([TrialTask(1, {"learning_rat": 0.1}, 1, 5)])
    with pytest.raises(SpecError, match="'learning_rate' has no default"):
        engine.advance([TrialTask(1, {}, 1, 5)])
    with pytest.raises(SpecError, match="must name each trial once"):
        engine.advance([task(1), task(1)])


def test_timing_says_where_the_time_went(toy, engine_of):
    engine = engine_of(toy)
    (progress,) = engine.advance([task()])
    assert {"compile_s", "warm_up_s", "step_time_s", "evaluation_s", "examples_per_s", "num_steps"} <= set(
        progress.timing
    )
    assert progress.timing["num_steps"] == 40
    assert progress.timing["examples_per_s"] == pytest.approx(7 / progress.timing["step_time_s"])


def test_parked_states_beyond_the_limit_go_to_checkpoints_and_come_back(toy, engine_of, tmp_path, monkeypatch):
    tasks = [task(i) for i in range(1, 5)]
    expected = engine_of(toy).advance(tasks)
    monkeypatch.setattr(study_engine, "MAX_PARKED_BYTES", 1)
    engine = engine_of(toy, checkpoint_dir=tmp_path)
    first = engine.advance([task(i, until=20) for i in range(1, 5)])
    rest = engine.advance([task(i, from_step=20) for i in range(1, 5)])
    for whole, one, two in zip(expected, first, rest, strict=True):
        assert one.rows + two.rows == whole.rows


def count_beginnings(engine, monkeypatch):
    """A list that grows with every trial that the engine begins from its seed."""
    begun = []
    init = engine._programs.init
    monkeypatch.setattr(engine._programs, "init", lambda *args: begun.append(args) or init(*args))
    return begun


def test_a_finished_trial_goes_on_from_its_last_state(toy, engine_of, tmp_path, monkeypatch):
    expected = engine_of(toy).advance([task(1), task(2)])
    first = engine_of(toy, checkpoint_dir=tmp_path)
    parts = first.advance([task(1, until=20), task(2, until=20)])
    first.save(1)
    for trial_id in (1, 2):
        first.finish(trial_id, 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.npz", "2.npz"]
    second = engine_of(toy, checkpoint_dir=tmp_path)
    begun = count_beginnings(second, monkeypatch)
    rests = second.advance([task(1, from_step=20), task(2, from_step=20)])
    assert begun == []
    for whole, part, rest in zip(expected, parts, rests, strict=True):
        assert part.rows + rest.rows == whole.rows


def test_measurements_beyond_the_end_of_a_finished_trial_need_no_training(toy, engine_of, tmp_path, monkeypatch):
    first = engine_of(toy, checkpoint_dir=tmp_path)
    (whole,) = first.advance([task(1)])
    first.finish(1, 20)  # as in a race that ended at step 20, when the trial had gone to 40
    second = engine_of(toy, checkpoint_dir=tmp_path)
    begun = count_beginnings(second, monkeypatch)
    (rest,) = second.advance([task(1, from_step=20)])
    assert begun == []
    assert rest.rows == whole.rows[3:]


def test_only_who_is_as_far_as_the_end_finishes_a_trial(toy, engine_of, tmp_path):
    ahead, behind, other = (engine_of(toy, checkpoint_dir=tmp_path) for _ in range(3))
    ahead.advance([task(1, until=20)])
    behind.advance([task(1, until=10)])
    ahead.finish(1, 20)
    kept = (tmp_path / "1.npz").read_bytes()
    behind.finish(1, 20)
    other.finish(1, 20)
    assert (tmp_path / "1.npz").read_bytes() == kept
    other.discard(1)
    assert not (tmp_path / "1.npz").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_thousand_trials_do_not_grow_the_process(toy, engine_of):
    engine = engine_of(toy, population=4)
    process = psutil.Process()

    def run(first):
        for trial_id in range(first, first + 100):
            engine.advance([task(trial_id, until=10)])
            engine.discard(trial_id)
        gc.collect()
        return process.memory_info().rss

    run(1)  # warm
    before = run(101)
    for first in range(201, 1001, 100):
        after = run(first)
    assert after - before < 8 * 2**20  # 800 trials: ten kilobytes each would show


def test_a_second_study_of_a_workload_compiles_only_its_training_loop(toy, study_of, engine_of, monkeypatch):
    monkeypatch.setattr(study_engine, "Programs", programs.Programs)
    engine_of(toy, study_of(toy, 5)).advance([task(until=10)])
    before = compile_count().programs
    engine_of(toy, study_of(toy, 6)).advance([task(until=10)])
    assert compile_count().programs == before + 1
