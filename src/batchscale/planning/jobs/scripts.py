"""Shell and Dockerfile texts that all formats share.

The launcher starts the training, or goes on with what is there: every format may start it again after any stop, and it
exits with 75 where it wants that.
"""

import json
import shlex
from collections.abc import Sequence

from batchscale.planning.jobs.job import PORT, JobLaunch

LAUNCHER = "train.sh"
DOCKERFILE = "Dockerfile"

_LAUNCHER = """\
#!/bin/sh
# {title}
# Run it again after any stop: it goes on from the last checkpoint. Exit code 75 asks for that.
# With arguments it is any other command of batchscale: data audio, audio transfer, web.
set -eu
[ $# -eq 0 ] || exec batchscale "$@"
cd "$(dirname "$0")"
records="${{RECORDS:-{records}}}"
set -- {command} {out} "$records"
if [ -n "$(find "$records" \\( -name measurements.csv -o -name 'journal-*' \\) 2>/dev/null | head -n 1)" ]; then
    set -- "$@" {resume}
fi
exec "$@"
"""

_DOCKERFILE = """\
# The image of the job beside this file. Build it in this folder:
#   docker build --build-arg BASE=python:3.12-slim -t {image} .
# BASE is any image with Python 3.11 or later; for GPUs one with the CUDA driver libraries that your JAX needs.
ARG BASE=python:3.12-slim
FROM ${{BASE}}
# EXTRAS are packages beside batchscale, such as "jax[cuda12]"; PACKAGE is what pip installs, with the extras of its own
# that are wanted: "batchscale[audio,web]" prepares recordings and serves as well.
# Without arguments a container trains; with arguments it is that command of batchscale, such as
#   docker run -v "$PWD/line:/line" -v "$PWD/records:/records" {image} data audio /line --out /records/prepared
ARG PACKAGE={package}
ARG EXTRAS=""
RUN pip install --no-cache-dir "${{PACKAGE}}" ${{EXTRAS}}
WORKDIR /batchscale
COPY . /batchscale
ENV RECORDS=/records
VOLUME /records
ENTRYPOINT ["sh", "/batchscale/{launcher}"]
"""


def launcher(job: JobLaunch) -> str:
    """The script that each host runs."""
    from batchscale.planning.jobs.command import OUT, RESUME

    return _LAUNCHER.format(
        title=f"{job.hosts} × {job.devices_per_host} {job.device}: batch size {job.command.batch_size}",
        records=job.records,
        command=job.command.line(job.devices_per_host),
        out=OUT,
        resume=RESUME,
    )


def dockerfile(job: JobLaunch, package: str) -> str:
    """The Dockerfile of the image; its base is a build argument."""
    return _DOCKERFILE.format(image=job.image, package=package, launcher=LAUNCHER)


def tf_config(addresses: Sequence[str], index: int) -> dict[str, object]:
    """The TF_CONFIG of one host: the chief first, then the workers."""
    named = [f"{address}:{PORT}" for address in addresses]
    cluster: dict[str, list[str]] = {"chief": named[:1]}
    if len(named) > 1:
        cluster["worker"] = named[1:]
    task = {"type": "chief", "index": 0} if index == 0 else {"type": "worker", "index": index - 1}
    return {"cluster": cluster, "task": task}


def tf_config_text(addresses: Sequence[str], index: int) -> str:
    """The same as JSON on one line."""
    return json.dumps(tf_config(addresses, index))


def tf_config_in_shell(addresses: Sequence[str], index: str) -> str:
    """Shell lines that set TF_CONFIG where only the running host knows its index, which ``index`` gives."""
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
