"""Workers of the Ray runner that die, hang, are taken away or cannot begin, on a cluster that all tests share."""

import os
import signal
import time
from dataclasses import replace

import psutil
import pytest
from ray_cluster import wait_for
from study_fakes import fake_setup, fake_study

from batchscale.errors import RunError
from batchscale.spec.experiment import RayPlan, RunPlan, WorkloadSpec
from batchscale.spec.workload_name import WorkloadName
from batchscale.study.trial import TrialTask
from batchscale.workers import handle
from batchscale.workers.ray import handle as handle_module
from batchscale.workers.ray import setup as ray_setup
from batchscale.workers.runner import Job, JobResult, LossReason, Setup, WorkerActivity

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
STUDY = fake_study()


def job(job_id: int, trial: int, until: int = 50) -> Job:
    return Job(job_id, STUDY, (TrialTask(trial, {"learning_rate": 0.1 * trial}, trial, until, -1),))


def collect(runner, count: int, seconds: float = 60.0):
    outcomes = []

    def look():
        outcomes.extend(event for event in runner.wait(0.1) if not isinstance(event, WorkerActivity))
        return len(outcomes) >= count

    wait_for(look, seconds, f"{count} answers")
    return {outcome.job_id: outcome for outcome in outcomes}


def has_started(runner) -> bool:
    """Whether a worker is at the first job."""
    return any(worker.started == 0 for worker in runner._workers.values())


def workers_of(runner) -> dict[str, tuple[psutil.Process, psutil.Process]]:
    """The actor's process and the worker's, by worker id: the fake cluster is on this machine."""
    found = {}
    for worker in runner._workers.values():
        actor = psutil.Process(worker.pid)
        found[worker.info.worker_id] = (actor, actor.children()[0])
    return found


def test_a_worker_that_a_trial_kills_is_replaced_with_its_last_lines_and_the_node(ray_runner):
    runner = ray_runner(fake_setup(bad_trials="1", mischief="kill"))
    worker = runner.workers[0].worker_id
    runner.submit(worker, job(0, 1))
    runner.submit(worker, job(1, 2))
    lost = collect(runner, 2)
    assert (lost[0].loss, lost[1].loss) == (LossReason.DIED, LossReason.NOT_STARTED)
    for words in ("SIGKILL", "about to misbehave", os.uname().nodename, worker):
        assert words in str(lost[0].reason)
    wait_for(lambda: runner.wait(0.1) == [] and runner.workers)
    assert runner.workers[0].worker_id != worker
    runner.submit(runner.workers[0].worker_id, job(2, 2))
    assert isinstance(collect(runner, 1)[2], JobResult)


def test_an_actor_that_is_killed_from_outside_is_no_failure_of_its_trials(ray_runner):
    runner = ray_runner(fake_setup(sleep_s=0.2))
    worker = runner.workers[0].worker_id
    actor, process = workers_of(runner)[worker]
    runner.submit(worker, job(0, 1, until=200))
    wait_for(lambda: runner.wait(0.1) is not None and has_started(runner), what="the job's start")
    actor.kill()
    assert collect(runner, 1)[0].loss is LossReason.PREEMPTED
    psutil.wait_procs([process], timeout=5)
    assert not process.is_running()
    wait_for(lambda: runner.wait(0.1) == [] and runner.workers)


def test_out_of_memory_lowers_how_many_train_at_once(ray_runner):
    runner = ray_runner(fake_setup(bad_trials="1", mischief="memory"), workers=2)
    runner.submit(runner.workers[0].worker_id, job(0, 1))
    assert collect(runner, 1)[0].loss is LossReason.OUT_OF_MEMORY
    assert len(runner.workers) == 1
    assert any("Out of memory" in notice for notice in runner.notices)
    wait_for(lambda: runner.wait(0.1) == [] and len(runner._workers) == 1)


def test_stop_ends_a_running_job_early_and_reports_what_it_has(ray_runner):
    runner = ray_runner(fake_setup(sleep_s=0.05))
    runner.submit(runner.workers[0].worker_id, job(0, 1, until=200))
    wait_for(lambda: runner.wait(0.1) is not None and has_started(runner), what="the job's start")
    runner.stop()
    done = collect(runner, 1)[0]
    assert len(done.progress[0].rows) < 21
    wait_for(lambda: runner.wait(0.1) == [] and runner.at_rest, 10)


def test_close_ends_hanging_workers_and_leaves_none(ray_runner):
    runner = ray_runner(fake_setup(bad_trials="1", mischief="hang"), workers=2)
    processes = [process for both in workers_of(runner).values() for process in both]
    runner.submit(runner.workers[0].worker_id, job(0, 1))
    wait_for(lambda: has_started(runner) or runner.wait(0.1) is None)
    started = time.monotonic()
    runner.close()
    assert time.monotonic() - started < 5
    psutil.wait_procs(processes, timeout=5)
    assert not any(process.is_running() for process in processes)


def test_a_worker_is_recycled_after_its_trials(ray_runner, monkeypatch):
    monkeypatch.setattr(handle, "RESTART_AFTER_TRIALS", 2)
    runner = ray_runner(fake_setup())
    first = runner.workers[0].worker_id
    runner.submit(first, job(0, 1))
    runner.submit(first, job(1, 2))
    assert all(isinstance(outcome, JobResult) for outcome in collect(runner, 2).values())
    wait_for(lambda: runner.wait(0.1) == [] and runner.workers and runner.workers[0].worker_id != first)
    runner.submit(runner.workers[0].worker_id, job(2, 3))
    assert isinstance(collect(runner, 1)[2], JobResult)
    assert not any("replaced" in notice for notice in runner.notices)


def test_workers_that_cannot_start_end_the_run_with_their_last_lines(ray_runner):
    broken = replace(fake_setup(), engine="no_such_module:make_engine")
    with pytest.raises(RunError, match=r"(?s)3 in a row died.*no_such_module"):
        ray_runner(broken)


def test_a_node_with_another_version_is_left_out_with_one_message(ray_runner, monkeypatch):
    monkeypatch.setattr(handle_module, "__version__", "99.0")
    with pytest.raises(RunError, match=r"Node \S+ cannot train .* must have batchscale 99\.0\. Found version"):
        ray_runner(fake_setup(), workers=2)


def test_a_node_that_does_not_see_the_checkpoints_trains_without_them_with_a_notice(ray_runner, tmp_path):
    setup = replace(fake_setup(), checkpoint_dir=tmp_path / "there")
    seen = ray_runner(setup)
    assert not any("does not see" in notice for notice in seen.notices)
    assert (tmp_path / "there" / ray_setup.MARKER).exists()
    seen.close()
    assert not (tmp_path / "there" / ray_setup.MARKER).exists()

    def forgotten(self) -> None:
        self.marker.parent.mkdir(parents=True, exist_ok=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_setup.RaySetup, "write_markers", forgotten)
        blind = ray_runner(setup)
    assert any(f"does not see {tmp_path / 'there'}" in notice for notice in blind.notices)


def test_a_node_that_does_not_reach_the_remote_path_trains_without_it_with_a_notice(ray_runner, tmp_path):
    plan = RunPlan(ray=RayPlan(checkpoints=f"file://{tmp_path}/states"))
    setup = replace(fake_setup(), experiment=replace(fake_setup().experiment, run=plan))
    seen = ray_runner(setup)
    assert not any("remote path" in notice for notice in seen.notices)
    assert (tmp_path / "states" / ray_setup.MARKER).exists()
    seen.close()
    assert not (tmp_path / "states" / ray_setup.MARKER).exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_setup.RaySetup, "write_markers", lambda _self: None)
        blind = ray_runner(setup)
    assert any("cannot store states at the remote path" in notice for notice in blind.notices)


def test_a_node_without_the_data_is_left_out_with_one_message_that_names_it(ray_runner, tmp_path):
    workload = WorkloadSpec(WorkloadName("imagenet", "resnet_50", "sgd"))
    setup = Setup(replace(fake_setup().experiment, workload=workload), data_dir=tmp_path)
    node = os.uname().nodename
    with pytest.raises(RunError, match=rf"^Node {node} cannot train .*'imagenet' must be on every machine"):
        ray_runner(setup, workers=2)


def test_a_demand_that_no_node_meets_waits_with_a_notice(ray_cluster):
    from batchscale.workers.ray import pool
    from batchscale.workers.ray.runner import RayRunner, RaySettings

    setup = fake_setup()
    setup = replace(setup, experiment=replace(setup.experiment, run=RunPlan(ray=RayPlan(resources={"rare": 2.0}))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "WAITING_S", 0.5)
        with RayRunner(setup, RaySettings(ray_cluster.address, 1)) as runner:
            wait_for(lambda: runner.wait(0.1) == [] and any("2 rare; no node" in text for text in runner.notices))
            node = ray_cluster.add(1, rare=2.0)
            wait_for(lambda: runner.wait(0.1) == [] and runner.workers, what="a worker on the new node")
            ray_cluster.kill(node)
            wait_for(lambda: runner.wait(0.1) == [] and not runner.workers, what="the loss of the node")


def test_the_handlers_of_signals_stay_ours(ray_runner):
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        ray_runner(fake_setup())
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
