"""What a user must fill in before a job can start: image, data, records, variables, places. One list for every format.

The list stands at the top of the format's file (JSON has no comments: of the launcher), and the command prints it.
"""

from collections.abc import Mapping

from batchscale.errors import one_line
from batchscale.planning.jobs.job import CONTAINER_FORMATS, JobLaunch
from batchscale.planning.jobs.own_script import FOLDER, ScriptCommand

HEADING = "Fill in before you start this job:"


def fill_in(job: JobLaunch, format_: str) -> tuple[str, ...]:
    """Return a sentence for everything that the job needs and only its owner knows."""
    items = []
    if format_ in CONTAINER_FORMATS:
        items += _image_items(job)
    elif isinstance(job.command, ScriptCommand):
        items.append("environment: batchscale and what your script imports must be installed on the hosts.")
    if format_ == "slurm":
        items.append("partition and account: pass them to sbatch, or add #SBATCH lines.")
    if format_ in ("tf-config", "commands") and job.hosts > 1 and not job.addresses:
        items.append("addresses: replace host-0, host-1, … by those of your hosts, or pass --address for each.")
    if job.memory and isinstance(job.command, ScriptCommand):
        items.append(f"memory: the plan fits a step with {job.memory}. Your script must do the same.")
    items.append(_data_item(job))
    if isinstance(job.command, ScriptCommand) and job.command.not_shipped:
        names = ", ".join(one_line(name, 80) for name in job.command.not_shipped[:5])
        items.append(f"files: the command names {names}, which the job does not ship. The hosts must have them.")
    items.append(_records_item(job, format_))
    items += _variable_items(job.command.variables, format_)
    if job.spot and isinstance(job.command, ScriptCommand) and not job.command.trainer.resume:
        items.append(
            "resume: the experiment has resume = false, so the script starts at step 0 whenever a host is lost."
        )
    return tuple(items)


def _image_items(job: JobLaunch) -> list[str]:
    registry = "" if "/" in job.image else " It has no registry: pass --image REGISTRY/NAME:TAG."
    items = [f"image: build {job.image} with the Dockerfile of this folder, and push it.{registry}"]
    if isinstance(job.command, ScriptCommand):
        has_list = "requirements.txt" in job.command.files
        source = "requirements.txt is installed" if has_list else "pass them as --build-arg EXTRAS=..."
        items.append(f"packages: the image needs what your script imports: {source}.")
    return items


def _data_item(job: JobLaunch) -> str:
    if isinstance(job.command, ScriptCommand):
        return f"data: your script must find its data where the job runs. Only the files in {FOLDER}/ are shipped."
    return "data: the hosts need the data set. Run 'batchscale data get NAME' on them or in the image."


def _records_item(job: JobLaunch, format_: str) -> str:
    place = f"records: they are written to {job.records}"
    if job.is_remote:
        return f"{place}. The hosts need the credentials of this storage."
    if format_ in ("kubernetes", "jobset"):
        return f"{place} on the claim batchscale-records, which must exist."
    needs = [
        reason
        for reason, holds in (
            ("hosts may be taken away", job.spot),
            ("all hosts write there", job.hosts > 1),
            ("a container's folder ends with it", format_ in CONTAINER_FORMATS),
        )
        if holds
    ]
    if not needs:
        return f"{place}. Pass --records for another folder."
    remote = "" if isinstance(job.command, ScriptCommand) else ", or a remote path such as s3://BUCKET/FOLDER"
    example = {"vertex": " such as /gcs/BUCKET/FOLDER", "skypilot": " such as a bucket under file_mounts"}.get(
        format_, ""
    )
    return f"{place}, but {' and '.join(needs)}: pass --records with a folder on shared storage{example}{remote}."


def _variable_items(names: tuple[str, ...], format_: str) -> list[str]:
    if not names:
        return []
    where = {
        "kubernetes": "put them into a secret called batchscale-env",
        "jobset": "put them into a secret called batchscale-env",
        "skypilot": "pass them with 'sky launch " + " ".join(f"--env {name}" for name in names) + "'",
        "vertex": "fill in their values in custom_job.json",
        "slurm": "set them in the shell that runs sbatch, which passes them on",
    }.get(format_, "set them in the shell that starts the job")
    return [f"variables: {', '.join(names)}, left out of these files because they look like secrets; {where}."]


def with_fill_in(files: Mapping[str, str], items: tuple[str, ...]) -> dict[str, str]:
    """Return the files of a job with the list at the top of the first one that has comments."""
    block = "\n".join([f"# {HEADING}", *(f"# {number}. {item}" for number, item in enumerate(items, 1)), ""])
    name = next(name for name in files if not name.endswith(".json"))
    text = files[name]
    first, rest = text.split("\n", 1) if text.startswith("#!") else ("", text)
    # the options of sbatch must come before the first command, but comments may be between
    return {**files, name: (f"{first}\n" if first else "") + block + rest}
