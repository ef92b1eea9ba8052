"""The engine of a user's script: the same promises as our own engine, and an outcome for everything a script may do."""

import time

import pytest
from trainer_fakes import advance, expected, make_engine, task

from batchscale.errors import TrialFailedError
from batchscale.spec.goal import Goal
from batchscale.trainers.supervisor import request_file

GOAL = Goal.parse("val/error < 0.2")


@pytest.fixture
def engine_of(tmp_path):
    """Makes engines and ends their scripts."""
    made = []

    def make(*words, **options):
        made.append(make_engine(tmp_path, *words, **options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def failure(engine, *tasks) -> str:
    with pytest.raises(TrialFailedError) as error:
        advance(engine, *(tasks or (task(),)))
    return str(error.value)


# --- measuring, pausing, resuming -----------------------------------------------------------------------------


def test_the_rows_that_were_asked_for_come_in_order(engine_of):
    (progress,) = advance(engine_of(), task(until=50, after=10))
    assert list(progress.rows) == expected(0.05, (20, 30, 40, 50))
    assert progress.step == 50 and progress.diverged_at is None
    assert progress.timing["step_time_s"] > 0 and progress.timing["warm_up_s"] > 0


def test_a_paused_script_waits_in_memory_and_goes_on(engine_of):
    engine = engine_of()
    advance(engine, task(until=30))
    assert len(engine._pool._paused) == 1
    (progress,) = advance(engine, task(until=60, after=30))
    assert list(progress.rows) == expected(0.05, (40, 50, 60))
    assert engine._trials[1]._folder.history.attempts == 1


@pytest.mark.parametrize("words", [(), ("save_in_loop=1",)])
def test_a_script_that_left_resumes_and_measures_the_same(engine_of, words):
    engine = engine_of(*words, max_paused=0)
    rows = []
    for until, after in ((30, -1), (60, 30), (100, 60)):
        (progress,) = advance(engine, task(until=until, after=after))
        rows += progress.rows
    assert rows == expected(0.05, range(10, 101, 10))
    assert engine._trials[1].reports.restored == 60


def test_a_script_that_cannot_resume_is_trained_again_and_measures_the_same(engine_of):
    engine = engine_of("restore=0", max_paused=0, more="")
    advance(engine, task(until=30))
    (progress,) = advance(engine, task(until=60, after=30))
    assert list(progress.rows) == expected(0.05, (40, 50, 60))
    assert engine._trials[1].reports.restored is None


def test_no_more_scripts_wait_than_the_limit_and_the_least_trained_leave_first(engine_of):
    engine = engine_of(max_paused=2)
    advance(engine, task(1, until=20), task(2, until=10), task(3, until=10), task(4, until=10))
    assert [trial_id for trial_id, trial in engine._trials.items() if trial.running] == [1, 2]


@pytest.mark.parametrize("resume", [True, False])
def test_a_trial_goes_from_worker_to_worker_and_back(engine_of, resume):
    """Each worker's script waits in memory when the other one is given the trial."""
    more = "resume = true\n" if resume else ""
    first, second = engine_of(more=more), engine_of(more=more)
    rows, restored = [], []
    for engine, until, after in (
        (first, 20, -1),
        (second, 40, 20),
        (first, 60, 40),
        (first, 80, 60),
        (second, 100, 80),
    ):
        (progress,) = advance(engine, task(until=until, after=after))
        rows += progress.rows
        restored.append(engine._trials[1].reports.restored)
    assert rows == expected(0.05, range(10, 101, 10))
    assert restored == ([None, 20, 40, 40, 80] if resume else [None] * 5)


def test_a_script_that_another_worker_asked_for_in_vain_is_started_again(engine_of):
    """The other worker died while it waited: the script has exited, or is about to, when its own worker goes on."""
    engine = engine_of()
    advance(engine, task(until=20))
    trial = engine._trials[1]
    request_file(trial._folder.lock).touch()
    while not trial.is_released:
        assert trial.running
        time.sleep(0.01)
    (progress,) = advance(engine, task(until=40, after=20))
    assert list(progress.rows) == expected(0.05, (30, 40))
    assert engine._trials[1].reports.restored == 20


def test_a_checkpoint_does_not_end_a_script_that_is_slow_to_start(engine_of):
    engine = engine_of("import_s=0.5")
    advance(engine, task(until=20))
    engine.save(1)
    assert engine._trials[1].running
    engine.save(1, ending=True)
    assert not engine._trials[1].running and engine._trials[1].has_state


def test_the_goal_ends_a_trial_at_its_first_measurement(engine_of):
    engine = engine_of()
    (progress,) = advance(engine, task(until=100, rate=0.099), goal=GOAL)
    assert [GOAL.is_reached_by(row["val/error"]) for _, row in progress.rows] == [False] * 4 + [True]
    assert engine._trials[1].reports.step == 50  # it stopped by itself
    assert advance(engine, task(until=100, after=20, rate=0.099), goal=GOAL)[0].rows[-1][0] == 50


def test_what_a_lost_worker_had_measured_is_not_trained_again(engine_of):
    advance(engine_of(), task(until=60))
    again = engine_of("mischief=exit", "at=1")  # another process, and a script that would fail
    again._context = again._context.__class__(**{**vars(again._context), "trainer": engine_of()._context.trainer})
    (progress,) = advance(again, task(until=60))
    assert list(progress.rows) == expected(0.05, range(10, 61, 10))


def test_another_trial_in_the_same_folder_begins_anew(engine_of):
    advance(engine_of(), task(until=60))
    (progress,) = advance(engine_of(), task(until=60, rate=0.02))
    assert list(progress.rows) == expected(0.02, range(10, 61, 10))


def test_asked_to_stop_a_script_saves_and_the_rows_so_far_are_told(engine_of):
    engine = engine_of("sleep_s=0.01")
    (progress,) = advance(engine, task(until=100), stop=lambda: engine._trials and engine._trials[1].reports.step >= 20)
    assert progress.step < 100 and not engine._trials[1].running
    saved = engine._trials[1].reports.saved
    assert saved is not None and saved >= progress.step
    (rest,) = advance(engine, task(until=100, after=progress.step))
    assert [*progress.rows, *rest.rows] == expected(0.05, range(10, 101, 10))


def test_save_makes_a_waiting_script_survive_and_leaves_it_waiting_if_it_can(engine_of):
    engine = engine_of("save_in_loop=1")
    advance(engine, task(until=30))
    engine.save(1)
    assert engine._trials[1].reports.saved == 30 and engine._trials[1].running


def test_discarding_a_trial_leaves_nothing(engine_of, tmp_path):
    engine = engine_of()
    advance(engine, task(until=30))
    engine.discard(1)
    deadline = time.monotonic() + 5
    while list((tmp_path / "trials").iterdir()) and time.monotonic() < deadline:
        engine._pool.reap()
        time.sleep(0.02)
    assert not list((tmp_path / "trials").iterdir())


def test_a_finished_trial_trains_longer_from_its_last_state(engine_of):
    engine = engine_of()
    advance(engine, task(until=100))
    engine.finish(1, 100)
    assert engine._trials == {}
    longer = engine_of(steps=120)
    (progress,) = advance(longer, task(until=120, after=100))
    assert list(progress.rows) == expected(0.05, (110, 120))
    assert longer._trials[1].reports.restored == 100


def test_a_damaged_state_is_left_behind_after_two_tries(engine_of, tmp_path):
    engine = engine_of(max_paused=0)
    advance(engine, task(until=30))
    (tmp_path / "trials/1/state/step-30/total").write_text("nonsense")
    for _ in range(2):
        assert "could not convert" in failure(engine, task(until=60, after=30))
    (progress,) = advance(engine, task(until=60, after=30))
    assert list(progress.rows) == expected(0.05, (40, 50, 60))


# --- everything a script may do ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["nan", "inf", "diverged"])
def test_divergence_is_an_outcome(engine_of, kind):
    engine = engine_of(f"mischief={kind}", "at=30")
    (progress,) = advance(engine, task(until=100))
    assert progress.diverged_at == progress.step == 30
    assert list(progress.rows) == expected(0.05, (10, 20))


@pytest.mark.parametrize("words", [("mischief=exit", "code=1"), ("mischief=raise",), ("mischief=kill",)])
def test_a_script_that_dies_tells_what_it_measured_then_fails_with_its_last_lines(engine_of, words):
    engine = engine_of(*words)
    (progress,) = advance(engine, task(until=50))
    assert list(progress.rows) == expected(0.05, (10, 20))
    reason = failure(engine, task(until=50, after=20))
    assert "before its measurement at step 30" in reason
    assert "about to misbehave" in reason
    assert ("SIGKILL" in reason) == (words[0] == "mischief=kill")


def test_out_of_memory_is_told_apart_and_fewer_scripts_wait_from_then_on(engine_of):
    engine = engine_of("mischief=memory", "bad=2")
    advance(engine, task(1, until=10))
    with pytest.raises(MemoryError, match="no room"):
        advance(engine, task(2, until=50))
    assert len(engine._pool._paused) == 0 and engine._pool.max_paused == 2


def test_a_script_that_exits_with_0_too_early_fails(engine_of):
    reason = failure(engine_of("mischief=exit", "at=5", "code=0"))
    assert "exited with code 0 before its measurement at step 10. It reported nothing" in reason


def test_a_script_that_hangs_is_killed_after_the_timeout(engine_of):
    engine = engine_of("mischief=hang", "at=5", more="resume = true\n")
    engine._context = _with_trainer(engine._context, timeout_s=0.5)
    assert "every 0.5 s" in failure(engine)
    assert not engine._trials[1].running


def test_a_script_that_floods_its_output_has_a_bounded_log(engine_of, tmp_path):
    engine = engine_of("mischief=flood", "at=5")
    (progress,) = advance(engine, task(until=50))
    assert progress.step == 50
    logs = list((tmp_path / "trials/1").rglob("log.txt*"))
    assert len(logs) == 2 and sum(log.stat().st_size for log in logs) < 10**6


def test_steps_that_go_backwards_fail(engine_of):
    engine = engine_of("mischief=backwards", "at=15")
    advance(engine, task(until=50))  # what came before is told first
    reason = failure(engine, task(until=50, after=10))
    assert "Steps must grow within an attempt. Found a measurement at step 5 after 10" in reason


def test_measurements_at_steps_nobody_asked_for_are_passed_over(engine_of):
    (progress,) = advance(engine_of("mischief=unasked", "at=28"), task(until=50))
    assert list(progress.rows) == expected(0.05, (10, 20, 30, 40, 50))


def test_a_measurement_that_is_left_out_fails(engine_of):
    engine = engine_of("mischief=gap")
    advance(engine, task(until=20))
    assert "must measure at step 30. Found no measurement there, and the next at step 50" in failure(
        engine, task(until=60, after=20)
    )


def test_a_report_without_the_goals_metric_fails_with_what_it_has(engine_of):
    reason = failure(engine_of("mischief=other_metric", "at=5"))
    assert "must have the goal's metric 'val/error'. Found ['val/los']" in reason


def test_a_metric_without_a_split_fails(engine_of):
    assert "'val/error'. Found 'error'" in failure(engine_of("mischief=bad_name", "at=5"))


def test_a_program_that_is_not_there_fails_with_its_name(engine_of):
    engine = engine_of()
    engine._context = _with_trainer(engine._context, command=("/no/such/program",))
    assert "/no/such/program: No such file" in failure(engine)


def _with_trainer(context, **changes):
    trainer = context.trainer.__class__(**{**vars(context.trainer), **changes})
    return context.__class__(**{**vars(context), "trainer": trainer})


@pytest.mark.parametrize("text", ["{", '{"rows": 1}'])
def test_a_damaged_folder_begins_anew(engine_of, tmp_path, text):
    advance(engine_of(), task(until=30))
    (tmp_path / "trials/1/known.json").write_text(text)
    (progress,) = advance(engine_of(), task(until=30))
    assert list(progress.rows) == expected(0.05, (10, 20, 30))
