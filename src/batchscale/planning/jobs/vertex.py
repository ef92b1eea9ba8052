"""A custom job for Vertex AI, which gives every replica its TF_CONFIG: the first worker pool is the chief."""

import json
import re
from typing import Any

from batchscale.errors import PlanningError, one_line
from batchscale.planning.jobs.accelerators import is_processor, vertex_name
from batchscale.planning.jobs.job import JobLaunch

MACHINE_TYPE = re.compile(r"\b[a-z][0-9][a-z]?-[a-z]+-[0-9]+[a-z]?\b")


def vertex_job(job: JobLaunch) -> dict[str, Any]:
    """The CustomJob as an object, in the API's own names."""
    pools = [_pool(job, 1)]
    if job.hosts > 1:
        pools.append(_pool(job, job.hosts - 1))
    scheduling: dict[str, Any] = {"restartJobOnWorkerRestart": True}
    if job.limit_s is not None:
        scheduling["timeout"] = f"{int(job.limit_s)}s"
    if job.spot:
        scheduling["strategy"] = "SPOT"
    return {"displayName": job.name, "jobSpec": {"workerPoolSpecs": pools, "scheduling": scheduling}}


def vertex_text(job: JobLaunch) -> str:
    """The text of ``custom_job.json``."""
    return json.dumps(vertex_job(job), indent=2) + "\n"


def _pool(job: JobLaunch, replicas: int) -> dict[str, Any]:
    machine: dict[str, Any] = {"machineType": machine_type(job.machine)}
    if not is_processor(job.device):
        machine |= {"acceleratorType": vertex_name(job.device), "acceleratorCount": job.devices_per_host}
    return {
        "machineSpec": machine,
        "replicaCount": str(replicas),
        "containerSpec": {"imageUri": job.image, "env": [{"name": "RECORDS", "value": job.records}]},
    }


def machine_type(name: str) -> str:
    """The Compute Engine machine type in a machine's name.

    >>> machine_type("gcp n1-standard-4 + T4")
    'n1-standard-4'
    """
    found = MACHINE_TYPE.search(name)
    if found is None:
        raise PlanningError(
            "Vertex AI needs the Compute Engine machine type in the machine's name, such as 'n1-standard-8 + 2 T4'. "
            f"Found {one_line(repr(name))}."
        )
    return found[0]
