"""A SLURM of two nodes on this machine, in a folder of its own, for as long as a test lasts."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from batchscale.workers.slurm.heartbeat import HeartbeatSettings
from batchscale.workers.slurm.runner import SlurmRunner, SlurmSettings

CONFIG = """\
ClusterName=small
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=2
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")


def is_there():
    """Whether SLURM and munge are installed and may be started by us."""
    return os.geteuid() == 0 and all(shutil.which(name) for name in PROGRAMS)


def free_ports(count):
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


# With credentials of 5 s a task that is put in the queue again waits for seconds there, not for two minutes.


@contextlib.contextmanager
def small_slurm(folder: Path):
    """The environment in which ``sbatch`` talks to it. Every process is ended at the end, by its id."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("state", "spool-n1", "spool-n2"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    port, first, second = free_ports(3)
    config = folder / "slurm.conf"
    text = CONFIG.format(host=socket.gethostname(), folder=folder, port=port, first=first, second=second)
    config.write_text(text)
    hosts = folder / "hosts"  # nodes find each other by name, as those of a real cluster do
    hosts.write_text(Path("/etc/hosts").read_text() + "127.0.0.1 n1 n2\n")
    environment = {**os.environ, "SLURM_CONF": str(config)}
    commands = [
        ["munged", "-F", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket",
         f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed"],
        ["slurmctld", "-D", "-f", str(config)],
        *(["unshare", "--mount", "sh", "-c", 'mount --bind "$1" /etc/hosts && shift && exec "$@"', "sh", str(hosts),
           "slurmd", "-D", "-N", node, "-f", str(config)] for node in ("n1", "n2")),
    ]  # fmt: skip
    started = []
    try:
        for command in commands:
            with (folder / f"{command[0]}-{len(started)}.out").open("wb") as log:
                started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            time.sleep(1)
        _wait(environment)
        yield environment
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30)


def _wait(environment):
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        answer = subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True)
        if "idle" in answer.stdout:
            return
        time.sleep(1)
    raise RuntimeError(f"SLURM did not come up: {answer.stdout} {answer.stderr}")


def real_slurm_runner(setup, folder: Path, workers: int = 1, **changes) -> SlurmRunner:
    settings = {"heartbeat": HeartbeatSettings(0.5, 10.0, 60.0), "view_every_s": 1.0} | changes
    return SlurmRunner(setup, SlurmSettings(workers, folder / "exchange", folder / "logs", **settings))
