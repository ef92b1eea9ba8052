"""The formats of job files: SLURM, Kubernetes, JobSet, SkyPilot, Vertex AI, TF_CONFIG files and command lines.

A job is the format's file, the launcher that it starts, and the Dockerfile of its image.
"""

import json
import math
import re
import textwrap
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from batchscale.errors import PlanningError, one_line, suggest_names
from batchscale.planning.devices import is_processor, parse_device
from batchscale.planning.jobs.fill_in import fill_in, with_fill_in
from batchscale.planning.jobs.job import CONTAINER_FORMATS, PORT, JobLaunch, check_options
from batchscale.planning.jobs.kubernetes import jobset_manifest, kubernetes_manifest
from batchscale.planning.jobs.own_script import ScriptCommand
from batchscale.planning.jobs.scripts import (
    DOCKERFILE,
    LAUNCHER,
    command_lines,
    dockerfile,
    launcher,
    tf_config_files,
)
from batchscale.records.output_file import write_output

MACHINE_TYPE = re.compile(r"\b[a-z][0-9][a-z]?-[a-z]+-[0-9]+[a-z]?\b")
VERTEX_NAMES = {
    "t4": "NVIDIA_TESLA_T4",
    "v100": "NVIDIA_TESLA_V100",
    "p100": "NVIDIA_TESLA_P100",
    "p4": "NVIDIA_TESLA_P4",
    "l4": "NVIDIA_L4",
    "a100": "NVIDIA_TESLA_A100",
    "h100": "NVIDIA_H100_80GB",
}

_SLURM_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={hosts}
#SBATCH --ntasks-per-node=1
{devices}{limit}#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={name}-%j.log
#SBATCH --signal={signal}@60
# Submit it in the folder that has {launcher}, with a records folder that all nodes see:
#   sbatch --partition=... --account=... job.sbatch
set -u
{start}
# 75 requests a restart: before the limit, or when a node went away.
if [ "$code" -eq 75 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""


_SLURM_ON_ALL_NODES = f"""\
srun --kill-on-bad-exit=1 sh "$SLURM_SUBMIT_DIR/{LAUNCHER}"
code=$?"""

_SLURM_ON_FIRST_NODE = f"""\
# The script's launcher starts the other nodes. A signal of SLURM is passed on to it, or ends the job before it.
trap 'if [ -n "${{!:-}}" ]; then kill -TERM "$!" 2>/dev/null; else exit 143; fi' TERM
sh "$SLURM_SUBMIT_DIR/{LAUNCHER}" &
first=$!
code=0
wait "$first" || code=$?
while kill -0 "$first" 2>/dev/null; do code=0; wait "$first" || code=$?; done"""


def slurm_script(job: JobLaunch) -> str:
    """Return the text of ``job.sbatch``; hosts find each other in SLURM's variables."""
    gpus = "" if is_processor(job.device) else f"#SBATCH --gpus-per-node={job.devices_per_host}\n"
    minutes = None if job.limit_s is None else math.ceil(job.limit_s / 60)
    limit = "" if minutes is None else f"#SBATCH --time={minutes}\n"
    on_first = isinstance(job.command, ScriptCommand) and job.hosts > 1
    return _SLURM_SCRIPT.format(
        name=job.name,
        hosts=job.hosts,
        devices=gpus,
        limit=limit,
        launcher=LAUNCHER,
        signal="B:TERM" if on_first else "TERM",
        start=_SLURM_ON_FIRST_NODE if on_first else _SLURM_ON_ALL_NODES,
    )


_SKYPILOT_TASK = """\
name: {name}
num_nodes: {hosts}
resources:
{resources}
workdir: .
envs:
  RECORDS: {records}
{variables}run: |
{script}
"""

_SKYPILOT_CLUSTER = """\
peers=$(echo "$SKYPILOT_NODE_IPS" | sed "s/.*/\\"&:{port}\\"/" | paste -s -d , -)
chief=$(echo "$peers" | cut -d , -f 1)
workers=$(echo "$peers" | cut -d , -f 2-)
if [ "$SKYPILOT_NODE_RANK" -eq 0 ]; then
    task='{{"type": "chief", "index": 0}}'
else
    task="{{\\"type\\": \\"worker\\", \\"index\\": $((SKYPILOT_NODE_RANK - 1))}}"
fi
export TF_CONFIG="{{\\"cluster\\": {{\\"chief\\": [$chief], \\"worker\\": [$workers]}}, \\"task\\": $task}}"
"""


def skypilot_task(job: JobLaunch) -> str:
    """Return the text of ``task.yaml``; nodes make their TF_CONFIG from SkyPilot's addresses."""
    cluster = [_SKYPILOT_CLUSTER.format(port=PORT).rstrip()] if job.hosts > 1 else []
    return _SKYPILOT_TASK.format(
        name=job.name,
        hosts=job.hosts,
        resources=textwrap.indent("\n".join(_skypilot_resources(job)), "  "),
        records=json.dumps(job.records),
        variables="".join(f"  {json.dumps(name)}: null\n" for name in job.command.variables),
        script=textwrap.indent("\n".join([*cluster, f"exec sh {LAUNCHER}"]), "  "),
    )


def _skypilot_resources(job: JobLaunch) -> list[str]:
    lines = [f"image_id: {json.dumps('docker:' + job.image)}"]
    if not is_processor(job.device):
        lines.append(f"accelerators: {json.dumps(skypilot_accelerator(job.device, job.devices_per_host))}")
    if job.spot:
        lines.append("use_spot: true")
    return lines


def skypilot_accelerator(device: str, count: int) -> str:
    """Return what a node of SkyPilot requests; a TPU slice is one accelerator, named by its cores or chips.

    >>> skypilot_accelerator("Tesla T4", 2), skypilot_accelerator("TPU v5 lite", 8), skypilot_accelerator("TPU v5p", 4)
    ('T4:2', 'tpu-v5litepod-8:1', 'tpu-v5p-8:1')
    """
    model = parse_device(device).model
    if not model.startswith("tpu"):
        return f"{skypilot_name(device)}:{count}"
    version = model.removeprefix("tpu").replace("v5e", "v5litepod")
    return f"tpu-{version}-{2 * count if version in ('v4', 'v5p') else count}:1"


def skypilot_name(device: str) -> str:
    """Return SkyPilot's name of an accelerator: its model, and its memory where there are two sizes of it.

    >>> skypilot_name("NVIDIA A100-SXM4-80GB"), skypilot_name("Tesla V100-SXM2-16GB"), skypilot_name("NVIDIA RTX 4090")
    ('A100-80GB', 'V100', 'RTX4090')
    """
    parts = parse_device(device)
    larger = (parts.model, parts.memory_gb) in (("a100", 80), ("v100", 32))
    return f"{parts.model.upper()}-{parts.memory_gb}GB" if larger else parts.model.upper()


def vertex_job(job: JobLaunch) -> dict[str, Any]:
    """Return the CustomJob as an object of the API.

    Vertex AI gives every replica its TF_CONFIG; the first worker pool is the chief.
    """
    pools = [_vertex_pool(job, 1)]
    if job.hosts > 1:
        pools.append(_vertex_pool(job, job.hosts - 1))
    scheduling: dict[str, Any] = {"restartJobOnWorkerRestart": True}
    if job.limit_s is not None:
        scheduling["timeout"] = f"{int(job.limit_s)}s"
    if job.spot:
        scheduling["strategy"] = "SPOT"
    return {"displayName": job.name, "jobSpec": {"workerPoolSpecs": pools, "scheduling": scheduling}}


def vertex_text(job: JobLaunch) -> str:
    """Return the text of ``custom_job.json``."""
    return json.dumps(vertex_job(job), indent=2) + "\n"


def _vertex_pool(job: JobLaunch, replicas: int) -> dict[str, Any]:
    machine: dict[str, Any] = {"machineType": machine_type(job.machine)}
    if not is_processor(job.device):
        machine |= {"acceleratorType": vertex_name(job.device), "acceleratorCount": job.devices_per_host}
    return {
        "machineSpec": machine,
        "replicaCount": str(replicas),
        "containerSpec": {
            "imageUri": job.image,
            "env": [
                {"name": "RECORDS", "value": job.records},
                *({"name": name, "value": ""} for name in job.command.variables),
            ],
        },
    }


def machine_type(name: str) -> str:
    """Return the Compute Engine machine type in a machine's name.

    >>> machine_type("gcp n1-standard-4 + T4")
    'n1-standard-4'
    """
    match = MACHINE_TYPE.search(name)
    if match is None:
        raise PlanningError(
            "Vertex AI needs the Compute Engine machine type in the machine's name, such as 'n1-standard-8 + 2 T4'. "
            f"Found {one_line(repr(name))}."
        )
    return match[0]


def vertex_name(device: str) -> str:
    """Return Vertex AI's name of an accelerator.

    Raises:
        PlanningError: Vertex AI is not known to have it.
    """
    parts = parse_device(device)
    if parts.model == "a100" and parts.memory_gb == 80:
        return "NVIDIA_A100_80GB"
    if parts.model not in VERTEX_NAMES:
        raise PlanningError(
            f"Vertex AI has accelerators such as {', '.join(sorted(VERTEX_NAMES)[:6])}. Found "
            f"{one_line(repr(device))}; choose another format."
        )
    return VERTEX_NAMES[parts.model]


FORMATS: Mapping[str, Callable[[JobLaunch], dict[str, str]]] = {
    "slurm": lambda job: {"job.sbatch": slurm_script(job)},
    "kubernetes": lambda job: {"job.yaml": kubernetes_manifest(job)},
    "jobset": lambda job: {"jobset.yaml": jobset_manifest(job)},
    "skypilot": lambda job: {"task.yaml": skypilot_task(job)},
    "vertex": lambda job: {"custom_job.json": vertex_text(job)},
    "tf-config": tf_config_files,
    "commands": lambda job: {"commands.txt": command_lines(job)},
}


def check_format(name: str) -> None:
    """Raise an error if no format has this name."""
    if name not in FORMATS:
        raise PlanningError(f"--job: no format is called '{one_line(name)}'; {suggest_names(name, FORMATS)}")


def job_files(job: JobLaunch, format_: str, train_options: Collection[str], package: str) -> dict[str, str]:
    """Return the texts of all files of a job, by name.

    Args:
        job: The job.
        format_: One of ``FORMATS``.
        train_options: Options of the installed ``batchscale train``.
        package: The package that pip installs in the image, such as ``batchscale==0.1.0``.
    """
    check_format(format_)
    files = {**FORMATS[format_](job), LAUNCHER: launcher(job), DOCKERFILE: dockerfile(job, package)}
    if isinstance(job.command, ScriptCommand):
        if job.hosts > 1 and format_ != "slurm":
            raise PlanningError(
                f"A job of your own script over several hosts needs --job slurm, whose nodes start each other. Found "
                f"--job {format_} with {job.hosts} hosts. Use one host (--max-hosts 1)."
            )
        in_container = format_ in CONTAINER_FORMATS
        files |= job.command.job_files(job.hosts, job.devices_per_host, job.device, in_container=in_container)
    else:
        check_options(job.hosts, job.devices_per_host, train_options)
    return with_fill_in(files, fill_in(job, format_))


def write_job(files: Mapping[str, str], folder: Path) -> tuple[Path, ...]:
    """Write the files, each whole; those of another job in the folder are replaced."""
    for name, text in files.items():
        write_output(folder / name, text)
    return tuple(folder / name for name in files)
