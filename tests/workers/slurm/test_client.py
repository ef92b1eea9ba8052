"""What is said to SLURM and what its answers mean, with programs of our own in place of SLURM's."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from batchscale.spec.experiment import SlurmOptions
from batchscale.study.failure import Failure
from batchscale.workers.runner import LossReason
from batchscale.workers.slurm.array import MAX_FAILURES, MAX_PREEMPTIONS, FailureLimit, explain_end
from batchscale.workers.slurm.client import QueuedTask, SlurmCommands, SlurmError, TaskKey, submission_environment
from batchscale.workers.slurm.session import sbatch_options, worker_script


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Writes a program in place of one of SLURM's, and tells what each was given."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def write(name: str, answer: str = "", code: int = 0) -> Path:
        given = tmp_path / f"{name}.json"
        path = tmp_path / name
        path.write_text(
            f"#!{sys.executable}\nimport json, sys\n"
            f"open({str(given)!r}, 'w').write(json.dumps([sys.argv[1:], sys.stdin.read()]))\n"
            f"sys.{'stderr' if code else 'stdout'}.write({answer!r})\nsys.exit({code})\n"
        )
        path.chmod(0o755)
        return given

    return write


def test_an_array_is_submitted_in_words(programs):
    given = programs("sbatch", "17;cluster\n")
    commands = SlurmCommands("batchscale-x", ["--partition=a b"], "#!/bin/sh\nexec true\n")
    assert commands.submit([0, 2], {"n7", "n1"}) == "17"
    words, script = json.loads(given.read_text())
    assert words == ["--parsable", "--job-name=batchscale-x", "--array=0,2", "--exclude=n1,n7", "--partition=a b"]
    assert script == "#!/bin/sh\nexec true\n"


def test_tasks_are_read_from_squeue(programs):
    programs("squeue", "4|0|FAILED|NonZeroExitCode|768|n1|0|\n4|1|PENDING|Resources|0||2|\n")
    assert SlurmCommands("x").list_tasks() == [
        QueuedTask(TaskKey("4", 0), "FAILED", "NonZeroExitCode", 768, "n1", 0),
        QueuedTask(TaskKey("4", 1), "PENDING", "Resources", 0, "", 2),
    ]


def test_an_answer_of_another_form_is_an_error(programs):
    programs("squeue", "no idea\n")
    with pytest.raises(SlurmError, match="7 fields"):
        SlurmCommands("x").list_tasks()


def test_only_our_own_jobs_are_cancelled(programs):
    given = programs("scancel")
    SlurmCommands("batchscale-x").cancel()
    assert json.loads(given.read_text())[0] == ["--quiet", "--name=batchscale-x"]
    SlurmCommands("batchscale-x").cancel(TaskKey("4", 1))
    assert json.loads(given.read_text())[0] == ["--quiet", "--name=batchscale-x", "4_1"]


def test_a_refusal_comes_with_slurms_own_words(programs):
    programs("sbatch", "sbatch: error: invalid partition specified: nope\n", code=1)
    with pytest.raises(SlurmError, match=r"SLURM refused 'sbatch': .*invalid partition specified: nope"):
        SlurmCommands("x").submit([0], ())


def test_without_slurm_the_error_names_the_login_node(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match="no 'sbatch': run it on a login node"):
        SlurmCommands("x").submit([0], ())


def test_what_the_drivers_own_job_was_given_is_not_for_its_workers():
    outside = {"SLURM_JOB_ID": "1", "SLURM_CPUS_PER_TASK": "9", "SLURM_CONF": "/c", "SBATCH_ACCOUNT": "a", "HOME": "/h"}
    assert submission_environment(outside) == {"SLURM_CONF": "/c", "SBATCH_ACCOUNT": "a", "HOME": "/h"}


def test_what_the_file_asks_for_is_passed_on(tmp_path):
    options = SlurmOptions("gpu", "lab", "high", "2:00:00", "a100:1", 4, "8G", 60, ("--exclusive",))
    words = sbatch_options(options, tmp_path / "100%")
    for word in ("--partition=gpu", "--account=lab", "--qos=high", "--time=2:00:00", "--gpus-per-node=a100:1",
                 "--cpus-per-task=4", "--mem=8G", "--signal=B:USR1@60", "--requeue", "--exclusive"):  # fmt: skip
        assert word in words
    assert f"--output={tmp_path}/100%%/slurm-%A_%a.log" in words
    assert not any(word.startswith("--partition") for word in sbatch_options(SlurmOptions(), tmp_path))


def test_the_script_passes_any_path_through_the_shell(tmp_path):
    odd = str(tmp_path / "a 'b' $(id) \"c\"")
    script = worker_script([odd]).replace("from batchscale.workers.slurm.worker import main; main(", "print(")
    answer = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == f"{[odd]}\n"


@pytest.mark.parametrize(
    ("state", "status", "loss"),
    [
        ("CANCELLED", 0, LossReason.PREEMPTED),
        ("PREEMPTED", 0, LossReason.PREEMPTED),
        ("NODE_FAIL", 0, LossReason.PREEMPTED),
        ("TIMEOUT", 0, LossReason.PREEMPTED),
        ("PENDING", 0, LossReason.PREEMPTED),
        ("OUT_OF_MEMORY", 9, LossReason.OUT_OF_MEMORY),
        ("FAILED", 9, LossReason.DIED),
        ("FAILED", 768, LossReason.DIED),
        ("COMPLETED", 0, LossReason.DIED),
    ],
)
def test_an_end_is_the_trials_doing_only_where_slurm_did_not_bring_it_about(tmp_path, state, status, loss):
    log = tmp_path / "log"
    log.write_text("the last line\n")
    found, reason = explain_end(QueuedTask(TaskKey("4", 1), state, "None", status, "n1"), log)
    assert found is loss
    if loss is LossReason.DIED:
        assert reason.log_lines == ("the last line",)
        assert {9: "SIGKILL", 768: "code 3", 0: "code 0"}[status] in reason.message


def test_a_task_that_slurm_has_forgotten_may_be_the_trials_doing(tmp_path):
    assert explain_end(None, tmp_path / "none")[0] is LossReason.DIED


@pytest.mark.parametrize(("loss", "most"), [(LossReason.DIED, MAX_FAILURES), (LossReason.PREEMPTED, MAX_PREEMPTIONS)])
def test_submitting_again_has_an_end(loss, most):
    from batchscale.errors import RunError

    limit = FailureLimit(workers=2)
    for _ in range(2):
        for _ in range(2 * most - 1):
            limit.count(loss, Failure("Why."))
        limit.reset()
    with pytest.raises(RunError, match=r"Why\."):
        for _ in range(2 * most):
            limit.count(loss, Failure("Why."))
