"""The promises of `Runner`, on every runner."""

import contextlib
import os
import time
from functools import partial

import psutil
import pytest
from fake_slurm import fake_slurm, fake_slurm_runner
from ray_cluster import start_runner
from small_slurm import is_there, real_slurm_runner
from study_fakes import fake_experiment, fake_setup, fake_study

from batchscale.errors import RunError
from batchscale.spec.trainer import TrainerSpec
from batchscale.study.trial import Activity, TrialTask
from batchscale.workers import handle, local
from batchscale.workers.inline import InlineRunner
from batchscale.workers.local import LocalRunner, LocalSettings
from batchscale.workers.messages import Begin
from batchscale.workers.remote_setup import make_remote_setup
from batchscale.workers.runner import Job, JobFailed, JobResult, LossReason, Setup, WorkerActivity

STUDY = fake_study()


def make_runner(kind: str, tmp_path, workers: int = 1, **options):
    setup = fake_setup(**options)
    if kind == "inline":
        return InlineRunner(setup)
    if kind == "local":
        return LocalRunner(setup, LocalSettings(workers, tmp_path / "logs"))
    if kind == "ray":
        return start_runner(os.environ["TESTED_RAY"], setup, workers)
    if kind == "slurm":
        return with_workers(real_slurm_runner(setup, tmp_path, workers), workers)
    slurm = CLUSTERS.enter_context(fake_slurm(tmp_path))
    return with_workers(fake_slurm_runner(setup, tmp_path, slurm, workers), workers)


CLUSTERS = contextlib.ExitStack()


@pytest.fixture(autouse=True)
def _clusters_end():
    with CLUSTERS:
        yield


def with_workers(runner, count: int, timeout_s: float = 60.0):
    """The runner, when its workers have come: a scheduler lets them wait."""
    end = time.monotonic() + timeout_s
    while len(runner.workers) < count and time.monotonic() < end:
        assert runner.wait(0.05) == []
    return runner


def job(job_id: int, *trials: int, until: int = 50, after: int = -1, rate: float = 0.1, **rest) -> Job:
    tasks = tuple(TrialTask(t, {"learning_rate": rate * t}, t, until, after) for t in trials)
    return Job(job_id, STUDY, tasks, **rest)


def answers(runner, timeout_s: float):
    return [event for event in runner.wait(timeout_s) if not isinstance(event, WorkerActivity)]


def collect(runner, count: int, timeout_s: float = 20.0):
    outcomes, end = [], time.monotonic() + timeout_s
    while len(outcomes) < count and time.monotonic() < end:
        outcomes += answers(runner, 0.1)
    assert len(outcomes) == count
    return {outcome.job_id: outcome for outcome in outcomes}


SLURM = pytest.param(
    "slurm", marks=[pytest.mark.slurm, pytest.mark.skipif(not is_there(), reason="SLURM is not installed here")]
)


RAY = pytest.param("ray", marks=pytest.mark.ray)


@pytest.fixture(params=["inline", "local", "fake slurm", SLURM, RAY])
def kind(request, monkeypatch):
    if request.param == "ray":
        monkeypatch.setenv("TESTED_RAY", request.getfixturevalue("ray_cluster").address)
    if request.param == "slurm":
        request.getfixturevalue("small_cluster")
    return request.param


@pytest.fixture(params=["local", "fake slurm", SLURM])
def processes(request):
    """The runners with processes of their own."""
    if request.param == "slurm":
        request.getfixturevalue("small_cluster")
    return request.param


def test_every_job_is_answered_once_with_the_rows_that_were_asked_for(kind, tmp_path):
    with make_runner(kind, tmp_path, workers=2) as runner:
        for i in range(6):
            runner.submit(runner.workers[i % len(runner.workers)].worker_id, job(i, i + 1, after=10))
        outcomes = collect(runner, 6)
        assert answers(runner, 0.05) == []
    assert sorted(outcomes) == list(range(6))
    rows = outcomes[2].progress[0].rows
    assert [step for step, _ in rows] == [20, 30, 40, 50]


def test_jobs_of_several_trials_answer_in_order(kind, tmp_path):
    with make_runner(kind, tmp_path, population=4) as runner:
        runner.submit(runner.workers[0].worker_id, job(0, 3, 1, 2))
        done = collect(runner, 1)[0]
    assert [p.trial_id for p in done.progress] == [3, 1, 2]
    assert done.population == 4


def test_a_given_population_is_used(kind, tmp_path):
    with make_runner(kind, tmp_path, population=4) as runner:
        runner.submit(runner.workers[0].worker_id, job(0, 1, population=2))
        assert collect(runner, 1)[0].population == 2


def test_a_trial_that_raises_is_a_lost_job_with_the_reason_and_the_next_job_runs(kind, tmp_path):
    with make_runner(kind, tmp_path, bad_trials="1", mischief="raise") as runner:
        worker = runner.workers[0].worker_id
        runner.submit(worker, job(0, 1))
        runner.submit(worker, job(1, 2))
        outcomes = collect(runner, 2)
    assert isinstance(outcomes[0], JobFailed)
    assert outcomes[0].loss is LossReason.ERROR
    assert "this trial cannot be trained" in outcomes[0].reason.message
    assert isinstance(outcomes[1], JobResult)


def test_out_of_memory_has_its_own_reason(kind, tmp_path):
    with make_runner(kind, tmp_path, bad_trials="1", mischief="memory") as runner:
        runner.submit(runner.workers[0].worker_id, job(0, 1))
        assert collect(runner, 1)[0].loss is LossReason.OUT_OF_MEMORY


def test_a_lost_job_gives_the_same_answer_when_submitted_again(kind, tmp_path):
    options = {"bad_trials": "1", "mischief": "raise", "once": tmp_path}
    with make_runner(kind, tmp_path, **options) as runner:
        runner.submit(runner.workers[0].worker_id, job(0, 1))
        assert isinstance(collect(runner, 1)[0], JobFailed)
        runner.submit(runner.workers[0].worker_id, job(1, 1))
        again = collect(runner, 1)[1]
    with make_runner(kind, tmp_path) as fresh:
        fresh.submit(fresh.workers[0].worker_id, job(1, 1))
        assert collect(fresh, 1)[1].progress == again.progress


def test_the_goal_ends_a_trial(kind, tmp_path):
    with make_runner(kind, tmp_path) as runner:
        runner.submit(runner.workers[0].worker_id, job(0, 1, until=200, goal=STUDY.goal))
        rows = collect(runner, 1)[0].progress[0].rows
    assert [STUDY.goal.is_reached_by(values["val/error"]) for _, values in rows] == [False] * (len(rows) - 1) + [True]


def test_stop_and_close_may_be_called_twice_and_a_closed_runner_takes_no_jobs(kind, tmp_path):
    runner = make_runner(kind, tmp_path)
    worker = runner.workers[0].worker_id
    runner.stop()
    runner.stop()
    runner.close()
    runner.close()
    assert runner.wait(0) == []
    with pytest.raises(RunError):
        runner.submit(worker, job(0, 1))


def test_a_job_for_a_worker_that_is_not_there_comes_back_as_not_started(kind, tmp_path):
    with make_runner(kind, tmp_path) as runner:
        assert runner.waiting("gone") == 0
        runner.submit("gone", job(0, 1))
        lost = collect(runner, 1)[0]
        assert (lost.loss, lost.worker_id) == (LossReason.NOT_STARTED, "gone")
        runner.submit(runner.workers[0].worker_id, job(0, 1))
        assert isinstance(collect(runner, 1)[0], JobResult)


def test_workers_have_unique_ids_and_a_host(kind, tmp_path):
    with make_runner(kind, tmp_path, workers=2) as runner:
        ids = [info.worker_id for info in runner.workers]
        assert len(set(ids)) == len(ids)
        assert all(info.num_devices >= 1 and info.host for info in runner.workers)


def test_a_worker_reports_its_activity(kind, tmp_path):
    with make_runner(kind, tmp_path) as runner:
        worker = runner.workers[0].worker_id
        runner.submit(worker, job(0, 1, 2))
        events, deadline = [], time.monotonic() + 20
        while not any(isinstance(event, JobResult) for event in events) and time.monotonic() < deadline:
            events += runner.wait(0.1)
    assert events[0] == WorkerActivity(worker, Activity.LOADING, STUDY.batch_size, (1, 2))
    assert isinstance(events[-1], JobResult)


# --- what only worker processes can do ------------------------------------------------------------------------


def test_a_killed_worker_is_replaced_and_its_other_jobs_count_as_not_started(processes, tmp_path):
    with make_runner(processes, tmp_path, bad_trials="1", mischief="kill") as runner:
        worker = runner.workers[0].worker_id
        runner.submit(worker, job(0, 1))
        runner.submit(worker, job(1, 2))
        lost = collect(runner, 2)
        assert (lost[0].loss, lost[1].loss) == (LossReason.DIED, LossReason.NOT_STARTED)
        assert "SIGKILL" in lost[0].reason.message
        assert "about to misbehave" in lost[0].reason.log_lines
        assert with_workers(runner, 1).workers[0].worker_id != worker
        runner.submit(runner.workers[0].worker_id, job(2, 2))
        assert isinstance(collect(runner, 1)[2], JobResult)


def test_out_of_memory_lowers_how_many_train_at_once(tmp_path):
    with make_runner("local", tmp_path, workers=2, bad_trials="1", mischief="memory") as runner:
        runner.submit(runner.workers[0].worker_id, job(0, 1))
        collect(runner, 1)
        assert len(runner.workers) == 1
        assert any("Out of memory" in notice for notice in runner.notices)


def test_stop_ends_a_running_job_early_and_reports_what_it_has(processes, tmp_path):
    with make_runner(processes, tmp_path, sleep_s=0.05) as runner:
        runner.submit(runner.workers[0].worker_id, job(0, 1, until=200))
        heard, deadline = [], time.monotonic() + 10
        while not heard and time.monotonic() < deadline:
            heard = runner.wait(0.05)
        time.sleep(0.3)
        runner.stop()
        done = collect(runner, 1, timeout_s=5)[0]
        assert 0 < len(done.progress[0].rows) < 21
        assert done.cut_short
        while not runner.at_rest and time.monotonic() < deadline + 10:
            runner.wait(0.05)
        assert runner.at_rest


def process_ids(runner: LocalRunner) -> list[int]:
    return [worker.process.pid for worker in runner._workers.values()]


def test_close_ends_hanging_workers_at_once_and_leaves_none(tmp_path):
    runner = make_runner("local", tmp_path, workers=2, bad_trials="1", mischief="hang")
    runner.submit(runner.workers[0].worker_id, job(0, 1))
    runner.wait(1.0)
    processes = process_ids(runner)
    started = time.monotonic()
    runner.close()
    assert time.monotonic() - started < 2
    assert not any(psutil.pid_exists(process) for process in processes)


def test_workers_end_when_the_driver_dies(tmp_path):
    runner = make_runner("local", tmp_path, bad_trials="1", mischief="hang")
    runner.submit(runner.workers[0].worker_id, job(0, 1))
    runner.wait(1.0)
    worker = next(iter(runner._workers.values()))
    worker.pipe.close()  # what the death of the driver does
    worker.process.wait(timeout=5)
    runner._workers.clear()


def test_a_worker_is_recycled_after_its_trials(tmp_path, monkeypatch):
    monkeypatch.setattr(handle, "RESTART_AFTER_TRIALS", 2)
    with make_runner("local", tmp_path) as runner:
        first = process_ids(runner)
        runner.submit(runner.workers[0].worker_id, job(0, 1, 2))
        collect(runner, 1)
        deadline = time.monotonic() + 5
        while (process_ids(runner) == first or not runner.workers) and time.monotonic() < deadline:
            assert answers(runner, 0.05) == []
        assert process_ids(runner) != first
        runner.submit(runner.workers[0].worker_id, job(1, 3))
        assert isinstance(collect(runner, 1)[1], JobResult)
        reason = "Worker local-0 is replaced by a fresh process. It has trained 2 trials."
        assert runner.notices == (reason,)
    assert reason in (tmp_path / "logs/workers.log").read_text()
    assert (tmp_path / "logs/worker-0.log.old").exists()


def test_a_worker_that_cannot_begin_here_ends_the_run_with_its_reason(tmp_path, monkeypatch):
    """Workers of this machine have nothing to check today; one that refuses all the same is not a crash."""
    experiment = fake_experiment(trainer=TrainerSpec(("no-such-program",), tmp_path))
    monkeypatch.setattr(local, "Begin", partial(Begin, remote=make_remote_setup(experiment)))
    setup = Setup(experiment, engine="fake_engine:make_engine")
    with (
        LocalRunner(setup, LocalSettings(1, tmp_path / "logs")) as runner,
        pytest.raises(RunError, match=r"^Node \S+ cannot train .*no-such-program"),
    ):
        for _ in range(100):
            runner.wait(0.2)


def test_workers_that_cannot_start_end_the_run_with_their_last_lines(tmp_path, monkeypatch):
    setup = fake_setup()
    broken = type(setup)(setup.experiment, engine="no_such_module:make_engine")
    with LocalRunner(broken, LocalSettings(1, tmp_path / "logs")) as runner, pytest.raises(RunError) as error:
        for _ in range(100):
            runner.wait(0.2)
    assert "no_such_module" in str(error.value)


def test_workers_compute_on_one_thread(monkeypatch):
    from batchscale.workers.environment import worker_environment

    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=x")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    environment = worker_environment(0)
    assert environment["XLA_FLAGS"] == "--xla_dump_to=x --xla_cpu_multi_thread_eigen=false"
    assert environment["OMP_NUM_THREADS"] == "1"
    assert os.environ["XLA_FLAGS"] == "--xla_dump_to=x"
