"""Shell and Dockerfile texts that all formats share, and files for hosts that are started by hand.

The launcher starts the training, or continues from the last checkpoint: every format may start it again after any stop,
and exit code 75 requests that.
"""

import json
import shlex
from collections.abc import Sequence

from batchscale.planning.jobs.job import MIRROR, OUT, PORT, JobLaunch
from batchscale.planning.jobs.own_script import FOLDER, ScriptCommand

LAUNCHER = "train.sh"
DOCKERFILE = "Dockerfile"

_LAUNCHER = """\
#!/bin/sh
# {title}
# Run it again after any stop: it continues from the last checkpoint. Exit code 75 requests that.
# With arguments it is any other command of batchscale: data audio, audio transfer, web.
set -eu
[ $# -eq 0 ] || exec batchscale "$@"
cd "$(dirname "$0")"
{variables}records="${{RECORDS:-{records}}}"
set -- {command}
case "$records" in
*://*) set -- "$@" {out} records {mirror} "$records" ;;
*) set -- "$@" {out} "$records" ;;
esac
exec "$@"
"""

_DOCKERFILE = """\
# The image of the job beside this file. Build it in this folder:
#   docker build --build-arg BASE=python:3.12-slim -t {image} .
# BASE is any image with Python 3.11 or later; for GPUs one with the CUDA libraries that your framework needs.
ARG BASE=python:3.12-slim
FROM ${{BASE}}
# EXTRAS are packages beside batchscale, such as "jax[cuda12]" or "torch"; PACKAGE is what pip installs, with the extras
# of its own that are wanted: "batchscale[jax,audio,web]" prepares recordings and serves too. If no index of yours has
# batchscale, put its wheel into this folder: PACKAGE=./batchscale-VERSION-py3-none-any.whl
# Without arguments a container trains; with arguments it is that command of batchscale, such as
#   docker run -v "$PWD/line:/line" -v "$PWD/records:/records" {image} data audio /line --out /records/prepared
ARG PACKAGE={package}
ARG EXTRAS=""
WORKDIR /batchscale
COPY . /batchscale
RUN pip install --no-cache-dir "${{PACKAGE}}" ${{EXTRAS}}{requirements}
ENV RECORDS=/records
VOLUME /records
ENTRYPOINT ["sh", "/batchscale/{launcher}"]
"""


def launcher(job: JobLaunch) -> str:
    """Return the script that each host runs."""
    variables = job.command.variables
    return _LAUNCHER.format(
        title=f"{job.hosts} × {job.devices_per_host} {job.device}: batch size {job.command.batch_size}",
        records=job.records,
        command=job.command_line,
        out=OUT,
        mirror=MIRROR,
        variables="".join(f': "${{{name}:?must be set in the environment of the job}}"\n' for name in variables),
    )


def dockerfile(job: JobLaunch, package: str) -> str:
    """Return the Dockerfile of the image; its base is a build argument."""
    has_list = isinstance(job.command, ScriptCommand) and "requirements.txt" in job.command.files
    requirements = f" -r {FOLDER}/requirements.txt" if has_list else ""
    if not isinstance(job.command, ScriptCommand):
        package = package.replace("batchscale", "batchscale[jax]", 1)  # a built-in workload needs the engine
    return _DOCKERFILE.format(image=job.image, package=package, launcher=LAUNCHER, requirements=requirements)


def tf_config(addresses: Sequence[str], index: int) -> dict[str, object]:
    """Return the TF_CONFIG of one host: the chief first, then the workers."""
    named = [f"{address}:{PORT}" for address in addresses]
    cluster: dict[str, list[str]] = {"chief": named[:1]}
    if len(named) > 1:
        cluster["worker"] = named[1:]
    task = {"type": "chief", "index": 0} if index == 0 else {"type": "worker", "index": index - 1}
    return {"cluster": cluster, "task": task}


def tf_config_text(addresses: Sequence[str], index: int) -> str:
    """Return a TF_CONFIG as JSON on one line."""
    return json.dumps(tf_config(addresses, index))


def tf_config_in_shell(addresses: Sequence[str], index: str) -> str:
    """Return shell lines that set TF_CONFIG on a host whose index is the shell expression ``index``."""
    chief, *workers = [f"{address}:{PORT}" for address in addresses]
    cluster = json.dumps({"chief": [chief], **({"worker": workers} if workers else {})})
    return "\n".join(
        [
            f"if [ {index} -eq 0 ]; then",
            """    task='{"type": "chief", "index": 0}'""",
            "else",
            f"""    task="{{\\"type\\": \\"worker\\", \\"index\\": $(({index} - 1))}}\"""",
            "fi",
            f"cluster={shlex.quote(cluster)}",
            """export TF_CONFIG="{\\"cluster\\": $cluster, \\"task\\": $task}\"""",
        ]
    )


def tf_config_files(job: JobLaunch) -> dict[str, str]:
    """Return a TF_CONFIG and a script for every host, by file name."""
    files = {}
    for i in range(job.hosts):
        files[f"host-{i}.json"] = json.dumps(tf_config(job.host_addresses, i), indent=2) + "\n"
        cluster = [f'TF_CONFIG="$(cat host-{i}.json)"', "export TF_CONFIG"] if job.hosts > 1 else []
        title = f"# Run on {job.host_addresses[i]}, in this folder."
        files[f"host-{i}.sh"] = "\n".join(["#!/bin/sh", title, "set -eu", *cluster, f"exec sh {LAUNCHER}", ""])
    return files


def command_lines(job: JobLaunch) -> str:
    """Return the lines to type, one per host."""
    lines = ["# In this folder, on every host; the records folder is one that all hosts see."]
    for i, address in enumerate(job.host_addresses):
        config = f"TF_CONFIG={shlex.quote(tf_config_text(job.host_addresses, i))} " if job.hosts > 1 else ""
        lines += [f"# {address}", f"{config}sh {LAUNCHER}"]
    return "\n".join(lines) + "\n"
