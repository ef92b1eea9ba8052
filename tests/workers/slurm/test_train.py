"""One trial over the tasks of a step, which find each other by what SLURM says in their environment."""

import os
import re
import shlex
import subprocess
import sys
import time

import pytest
from small_slurm import is_there

pytestmark = [pytest.mark.slurm, pytest.mark.skipif(not is_there(), reason="SLURM is not installed here")]

TRAIN = ["train", "digits/fc_64/sgd", "-b", "64", "--steps", "100", "--set", "learning_rate=0.1", "--exact"]


def train(folder, environment, *more: str, before: tuple[str, ...] = ()) -> str:
    words = [*before, sys.executable, "-m", "batchscale", *TRAIN, "--out", str(folder), *more]
    answer = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0, answer.stderr[-3000:]
    (trial,) = folder.rglob("measurements.csv")  # the chief alone writes
    return trial.read_text()


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("full_programs")  # sums are exact in those that users have
def test_two_tasks_of_srun_train_one_trial_as_two_devices_of_a_host_do(small_cluster, tmp_path):
    flags = os.environ["XLA_FLAGS"]
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {**small_cluster, "PYTHONPATH": path, "XLA_FLAGS": flags}
    step = ("srun", "--nodes=2", "--ntasks-per-node=1")
    together = train(tmp_path / "step", environment, "--devices", "1", before=step)
    alone = environment | {"XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=2"}
    assert together == train(tmp_path / "alone", alone, "--devices", "2")


LONG = [
    *("train", "digits/linear/sgd", "-b", "50", "--steps", "3000", "--evaluate-every", "50", "--exact"),
    *("--set", "learning_rate=0.01", "--checkpoint-every", "0.2"),
]


def ask(environment, *words: str) -> str:
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout


def await_text(path, text: str, environment, count: int = 1) -> str:
    until = time.monotonic() + 300
    while True:
        content = path.read_text() if path.exists() else ""
        if content.count(text) >= count:
            return content
        assert time.monotonic() < until, (content[-3000:], ask(environment, "scontrol", "show", "jobs"))
        time.sleep(0.2)


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("full_programs")  # sums are exact in those that users have
def test_a_job_that_is_put_in_the_queue_again_continues_its_trial(small_cluster, tmp_path):
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {**small_cluster, "PYTHONPATH": path, "XLA_FLAGS": os.environ["XLA_FLAGS"], "PYTHONUNBUFFERED": "1"}
    words = [sys.executable, "-m", "batchscale", *LONG]
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/sh\n#SBATCH --nodes=2 --ntasks-per-node=1 --requeue --open-mode=append\n"
        f'srun {shlex.join([*words, "--out", str(tmp_path / "records")])}\necho "ended with $?"\n'
    )
    log = tmp_path / "job.log"
    number = ask(environment, "sbatch", "--parsable", f"--output={log}", str(script)).strip()
    await_text(log, "examples/s", environment, count=3)
    ask(environment, "scontrol", "requeue", number)
    content = await_text(log, "ended with 0", environment)
    assert "Trial 1 in " in content and "is started." in content
    continued = re.search(r"Trial 1 in \S+ is continued from step ([\d,]+)\.", content)
    assert continued and int(continued[1].replace(",", "")) >= 50, content
    assert "Traceback" not in content
    alone = subprocess.run(
        [*words, "--out", str(tmp_path / "alone")], env=environment, capture_output=True, timeout=300
    )
    assert alone.returncode == 0, alone.stderr[-3000:]
    (requeued,), (whole,) = ((tmp_path / name).rglob("measurements.csv") for name in ("records", "alone"))
    assert requeued.read_bytes() == whole.read_bytes()
