"""A batch script for SLURM: hosts find each other in SLURM's own variables."""

import math

from batchscale.planning.jobs.accelerators import is_processor
from batchscale.planning.jobs.job import JobLaunch
from batchscale.planning.jobs.scripts import LAUNCHER

_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={hosts}
#SBATCH --ntasks-per-node=1
{devices}{limit}#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={name}-%j.log
#SBATCH --signal=TERM@60
# Submit it in the folder that has {launcher}, with a records folder that all nodes see:
#   sbatch --partition=... --account=... job.sbatch
set -u
srun --kill-on-bad-exit=1 sh "$SLURM_SUBMIT_DIR/{launcher}"
code=$?
# 75 asks to be started again: before the limit, or when a node went away.
if [ "$code" -eq 75 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""


def slurm_script(job: JobLaunch) -> str:
    """The text of ``job.sbatch``."""
    gpus = "" if is_processor(job.device) else f"#SBATCH --gpus-per-node={job.devices_per_host}\n"
    minutes = None if job.limit_s is None else math.ceil(job.limit_s / 60)
    limit = "" if minutes is None else f"#SBATCH --time={minutes}\n"
    return _SCRIPT.format(name=job.name, hosts=job.hosts, devices=gpus, limit=limit, launcher=LAUNCHER)
