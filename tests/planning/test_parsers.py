"""Job files as SkyPilot and Vertex AI's own libraries read them, from a folder of their own (``make test-parsers``)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from batchscale.planning.jobs.formats import job_files, write_job

from .job_samples import ALL_OPTIONS, make_job

LIBRARIES = os.environ.get("BATCHSCALE_PARSERS", "")
pytestmark = [
    pytest.mark.parsers,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not Path(LIBRARIES).is_dir() or not LIBRARIES, reason="set by make test-parsers"),
]
SKYPILOT = """
import json, sys
import sky
task = sky.Task.from_yaml(sys.argv[1])
(resources,) = task.resources
print("\\n" + json.dumps([task.name, task.num_nodes, resources.accelerators, resources.use_spot]))
"""
VERTEX = """
import json, sys
from google.cloud.aiplatform_v1.types import CustomJob
job = CustomJob.from_json(open(sys.argv[1]).read())
pools = [[p.replica_count, p.machine_spec.accelerator_count] for p in job.job_spec.worker_pool_specs]
print("\\n" + json.dumps([pools, job.job_spec.scheduling.strategy.name]))
"""


def parse(code, path, home):
    environment = {**os.environ, "PYTHONPATH": LIBRARIES, "HOME": str(home), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    command = [sys.executable, "-c", code, str(path)]
    return subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=240)


def written(job, format_, folder):
    return write_job(job_files(job, format_, ALL_OPTIONS, "batchscale==0.1.0"), folder)[0]


def test_skypilot_reads_the_task(tmp_path):
    path = written(make_job(4, 2, spot=True), "skypilot", tmp_path / "job")
    answer = parse(SKYPILOT, path, tmp_path / "job")
    assert answer.returncode == 0, answer.stderr[-2000:]
    assert json.loads(answer.stdout.splitlines()[-1]) == ["batchscale-t4-b128", 4, {"T4": 2}, True]


def test_skypilot_refuses_a_broken_task(tmp_path):
    path = written(make_job(), "skypilot", tmp_path / "job")
    path.write_text(path.read_text().replace("num_nodes", "num_nodez"))
    assert parse(SKYPILOT, path, tmp_path / "job").returncode != 0


def test_vertex_reads_the_job(tmp_path):
    path = written(make_job(4, 2, spot=True), "vertex", tmp_path / "job")
    answer = parse(VERTEX, path, tmp_path / "job")
    assert answer.returncode == 0, answer.stderr[-2000:]
    assert json.loads(answer.stdout.splitlines()[-1]) == [[[1, 2], [3, 2]], "SPOT"]


def test_vertex_refuses_a_broken_job(tmp_path):
    path = written(make_job(), "vertex", tmp_path / "job")
    path.write_text(path.read_text().replace("workerPoolSpecs", "workerPools"))
    assert parse(VERTEX, path, tmp_path / "job").returncode != 0
