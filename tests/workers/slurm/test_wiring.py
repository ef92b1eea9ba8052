"""``--runner slurm`` as a run sees it: what is refused before anything is submitted, and a whole run."""

import pytest
from fake_slurm import QUICK, fake_slurm
from study_fakes import FAKE_ENGINE, fake_experiment, fake_facts, read_values, run_fake

from batchscale.errors import RunError
from batchscale.run import make_runner
from batchscale.run.loop import RunResult
from batchscale.run.session import RunSettings, run_plan
from batchscale.spec.experiment import RunPlan, SlurmOptions
from batchscale.spec.plan import make_plan
from batchscale.workers.slurm.runner import SlurmSettings


def run(folder, workers=2, **changes):
    plan = make_plan(fake_experiment(**changes), fake_facts())
    return run_plan(plan, folder, RunSettings("slurm", workers, engine=FAKE_ENGINE))


def test_how_many_jobs_is_for_the_user_to_say(tmp_path):
    with pytest.raises(RunError, match="--workers"):
        run(tmp_path / "out", workers=None)
    assert not (tmp_path / "out").exists()


def test_a_trial_has_no_more_devices_than_its_worker_asks_for(tmp_path):
    with pytest.raises(RunError, match="Found 4 of 2"):
        run(tmp_path / "out", run=RunPlan(4, slurm=SlurmOptions(gpus="a100:2")))


def test_without_slurm_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunError, match="run it on a login node"):
        run(tmp_path / "out")
    assert list((tmp_path / "out" / ".batchscale" / "exchange").iterdir()) == []


def test_a_finished_run_asks_slurm_for_nothing(tmp_path, monkeypatch):
    run_fake(tmp_path / "out")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_fake(tmp_path / "out", "slurm").result is RunResult.FINISHED


@pytest.mark.slow
def test_the_records_are_those_of_any_other_runner(tmp_path, monkeypatch):
    with fake_slurm(tmp_path / "slurm") as slurm:

        def make(setup, settings: SlurmSettings):
            quick = SlurmSettings(settings.workers, settings.folder, slurm.log_dir, heartbeat=QUICK, view_every_s=0.1)
            return real(setup, quick, slurm.of_session)

        real = make_runner.SlurmRunner
        monkeypatch.setattr(make_runner, "SlurmRunner", make)
        assert run_fake(tmp_path / "jobs", "slurm").result is RunResult.FINISHED
    run_fake(tmp_path / "inline")
    assert read_values(tmp_path / "jobs") == read_values(tmp_path / "inline")
    assert list((tmp_path / "jobs" / ".batchscale" / "exchange").iterdir()) == []
