"""A task for SkyPilot: nodes make their TF_CONFIG from the addresses that SkyPilot gives them."""

import json
import textwrap

from batchscale.planning.jobs.accelerators import is_processor, skypilot_name
from batchscale.planning.jobs.job import PORT, JobLaunch
from batchscale.planning.jobs.scripts import LAUNCHER

_TASK = """\
name: {name}
num_nodes: {hosts}
resources:
{resources}
workdir: .
envs:
  RECORDS: {records}
run: |
{script}
"""

_CLUSTER = """\
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
    """The text of ``task.yaml``."""
    cluster = [_CLUSTER.format(port=PORT).rstrip()] if job.hosts > 1 else []
    return _TASK.format(
        name=job.name,
        hosts=job.hosts,
        resources=textwrap.indent("\n".join(_resources(job)), "  "),
        records=json.dumps(job.records),
        script=textwrap.indent("\n".join([*cluster, f"exec sh {LAUNCHER}"]), "  "),
    )


def _resources(job: JobLaunch) -> list[str]:
    lines = [f"image_id: {json.dumps('docker:' + job.image)}"]
    if not is_processor(job.device):
        lines.append(f"accelerators: {json.dumps(f'{skypilot_name(job.device)}:{job.devices_per_host}')}")
    if job.spot:
        lines.append("use_spot: true")
    return lines
