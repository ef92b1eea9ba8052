"""The files of a job in a folder: the format's own, the launcher that it starts, the Dockerfile of its image."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from batchscale.errors import PlanningError, one_line, suggest_names
from batchscale.planning.jobs.by_hand import command_lines, tf_config_files
from batchscale.planning.jobs.command import check_options
from batchscale.planning.jobs.job import JobLaunch
from batchscale.planning.jobs.kubernetes import jobset_manifest, kubernetes_manifest
from batchscale.planning.jobs.scripts import DOCKERFILE, LAUNCHER, dockerfile, launcher
from batchscale.planning.jobs.skypilot import skypilot_task
from batchscale.planning.jobs.slurm import slurm_script
from batchscale.planning.jobs.vertex import vertex_text
from batchscale.records.durable import make_folders, replace_file, storing
from batchscale.records.filesystem import REAL, FileSystem

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
    """Refuses a format that there is not."""
    if name not in FORMATS:
        raise PlanningError(f"--job: no format is called '{one_line(name)}'; {suggest_names(name, FORMATS)}")


def job_files(job: JobLaunch, format_: str, known_options: Collection[str], package: str) -> dict[str, str]:
    """The texts of all files of a job, by name.

    Args:
        job: What is launched.
        format_: One of ``FORMATS``.
        known_options: Those that the installed ``batchscale train`` has.
        package: What pip installs in the image, such as ``batchscale==0.1.0``.
    """
    check_format(format_)
    check_options(job.hosts, job.devices_per_host, known_options)
    return {**FORMATS[format_](job), LAUNCHER: launcher(job), DOCKERFILE: dockerfile(job, package)}


def write_job(files: Mapping[str, str], folder: Path, fs: FileSystem = REAL) -> tuple[Path, ...]:
    """Writes the files, each whole; those of another job in the folder are replaced."""
    with storing("writing the job", folder):
        make_folders(fs, folder)
        for name, text in files.items():
            replace_file(fs, folder / name, folder, text.encode())
    return tuple(folder / name for name in files)
