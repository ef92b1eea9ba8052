"""One run begun on this machine, continued on Ray and finished on SLURM: the records of an uninterrupted local one."""

import importlib.util

import pytest
from ray_runs import LONGER, Command
from small_slurm import is_there
from study_fakes import read_studies, read_values

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slurm,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not is_there(), reason="SLURM is not installed here"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed here"),
]
LONGEST = LONGER.replace("= 150", "= 1500")
LOCALLY = ("--workers", "2")
ON_SLURM = ("--runner", "slurm", "--workers", "2")


def test_local_then_ray_then_slurm_gives_the_records_of_one_local_run(ray_cluster, small_cluster, tmp_path):
    del small_cluster  # it is in the environment
    Command(tmp_path, LONGEST, "whole", *LOCALLY).finish()
    counts = []
    for place in (LOCALLY, ("--runner", "ray", "--ray-address", ray_cluster.address)):
        run = Command(tmp_path, LONGEST, "parts", *place)
        run.wait_for_training()
        run.stop()
        counts.append(len(read_values(run.out)))
    last = Command(tmp_path, LONGEST, "parts", *ON_SLURM)
    last.wait_for(lambda snapshot: any(worker.worker.startswith("slurm-") for worker in snapshot.doing), what="a job")
    last.finish()
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert max(counts) < len(read_values(parts)), "each runner had something left to train"
    assert (read_values(parts), read_studies(parts)) == (read_values(whole), read_studies(whole))
