"""The batch script as SLURM itself sees it: ``sbatch --test-only`` on a small cluster of our own."""

import subprocess

import pytest
from small_slurm import is_there, small_slurm

from batchscale.planning.jobs.formats import job_files, write_job

from .job_samples import ALL_OPTIONS, make_job

pytestmark = [pytest.mark.slurm, pytest.mark.skipif(not is_there(), reason="SLURM is not installed here")]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    with small_slurm(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


def submit(job, folder, environment, *more):
    write_job(job_files(job, "slurm", ALL_OPTIONS, "batchscale==0.1.0"), folder)
    command = ["sbatch", *more, "job.sbatch"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("hosts", [1, 2])
def test_slurm_takes_the_script(hosts, tmp_path, environment):
    answer = submit(make_job(hosts, 1, "x86_64"), tmp_path, environment, "--test-only")
    assert answer.returncode == 0, answer.stderr


def test_slurm_refuses_more_nodes_than_there_are(tmp_path, environment):
    answer = submit(make_job(3, 1, "x86_64"), tmp_path, environment, "--test-only")
    assert answer.returncode != 0


def test_slurm_refuses_an_option_that_it_does_not_know(tmp_path, environment):
    folder = tmp_path / "job"
    write_job(job_files(make_job(1, 1, "x86_64"), "slurm", ALL_OPTIONS, "batchscale==0.1.0"), folder)
    script = folder / "job.sbatch"
    script.write_text(script.read_text().replace("--requeue", "--requeue-please"))
    command = ["sbatch", "--test-only", "job.sbatch"]
    assert subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=60).returncode != 0
