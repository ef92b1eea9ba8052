"""Job files: what starts a chosen configuration on SLURM, Kubernetes, SkyPilot, Vertex AI, or by hand."""

from batchscale.planning.jobs.command import TrainCommand
from batchscale.planning.jobs.job import JobLaunch, choice_metaparameters, give_up_steps, make_job
from batchscale.planning.jobs.write import FORMATS, check_format, job_files, write_job

__all__ = [
    "FORMATS",
    "JobLaunch",
    "TrainCommand",
    "check_format",
    "choice_metaparameters",
    "give_up_steps",
    "job_files",
    "make_job",
    "write_job",
]
