"""Files for hosts that are started by hand or by a system of one's own: TF_CONFIG and a command for each."""

import json
import shlex

from batchscale.planning.jobs.job import JobLaunch
from batchscale.planning.jobs.scripts import LAUNCHER, tf_config, tf_config_text


def tf_config_files(job: JobLaunch) -> dict[str, str]:
    """A TF_CONFIG and a script for every host, by file name."""
    files = {}
    for i in range(job.hosts):
        files[f"host-{i}.json"] = json.dumps(tf_config(job.host_addresses, i), indent=2) + "\n"
        cluster = [f'TF_CONFIG="$(cat host-{i}.json)"', "export TF_CONFIG"] if job.hosts > 1 else []
        where = f"# Run on {job.host_addresses[i]}, in this folder."
        files[f"host-{i}.sh"] = "\n".join(["#!/bin/sh", where, "set -eu", *cluster, f"exec sh {LAUNCHER}", ""])
    return files


def command_lines(job: JobLaunch) -> str:
    """The lines to type, one per host."""
    lines = ["# In this folder, on every host; the records folder is one that all hosts see."]
    for i, address in enumerate(job.host_addresses):
        own = f"TF_CONFIG={shlex.quote(tf_config_text(job.host_addresses, i))} " if job.hosts > 1 else ""
        lines += [f"# {address}", f"{own}sh {LAUNCHER}"]
    return "\n".join(lines) + "\n"
