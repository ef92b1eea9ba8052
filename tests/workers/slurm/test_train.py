"""One trial over the tasks of a step, which find each other by what SLURM says in their environment."""

import os
import subprocess
import sys

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
