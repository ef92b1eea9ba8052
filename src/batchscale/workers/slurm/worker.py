"""A worker as a job of SLURM: arrives in the run's folder, trains what the driver asks for, and leaves when told to.

Started by the script of `script.worker_script` with the folder of the driver's session, the number of devices, and the
rhythm of signs of life. Writes no records; nothing that it holds is needed to resume.
"""

import os
import signal
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from batchscale.machine import DISK_FULL, name_host
from batchscale.workers.environment import memory_limit, worker_environment
from batchscale.workers.slurm.letters import Arrived, Departure
from batchscale.workers.slurm.line import FolderLine, Rhythm
from batchscale.workers.slurm.mailbox import make_mailbox
from batchscale.workers.worker import Worker

PULSE = "pulse"
WORKERS = "workers"
_LEFT_TO_THE_DRIVER = (signal.SIGINT, signal.SIGHUP)
_FULL_DISK_S = 5.0
_FOLDER_S = 60.0
"""How long a new folder may take to be seen on another machine."""

_HOLD_S = 120.0
"""How long a worker that has saved waits to be put in the queue again."""


def worker_words(session: Path, num_devices: int, rhythm: Rhythm) -> list[str]:
    """The arguments of `main`."""
    return [str(session), str(num_devices), str(rhythm.beat_s), str(rhythm.leave_s)]


def main(words: Sequence[str]) -> None:
    """Serve the driver whose session this is; the process ends here."""
    session, num_devices, rhythm = Path(words[0]), int(words[1]), Rhythm(float(words[2]), float(words[3]))
    for number in _LEFT_TO_THE_DRIVER:
        signal.signal(number, signal.SIG_IGN)
    outside = dict(os.environ)
    os.environ.update(worker_environment(0, num_devices))
    node = outside.get("SLURMD_NODENAME") or name_host()
    line = FolderLine(_move_in(session, node), session / PULSE, rhythm, outside)
    line.post(_introduction(node, outside))
    Worker(line, node).serve()
    line.say_goodbye()
    if line.departure is Departure.TIME_LIMIT:
        time.sleep(_HOLD_S)  # the driver puts this job in the queue again, which ends it
    sys.stdout.flush()
    sys.stderr.flush()
    if line.retired:  # afresh, in the same job
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], outside)  # noqa: S606 - words, no shell
    os._exit(0)  # no waiting for threads of libraries


def _move_in(session: Path, node: str) -> Path:
    """A folder of its own, which appears whole."""
    _await_folder(session, node)
    name = uuid.uuid4().hex
    beside, folder = session / name, session / WORKERS / name
    while True:
        try:
            beside.mkdir(mode=0o700, exist_ok=True)
            for mailbox in ("in", "out"):
                make_mailbox(beside / mailbox)
            beside.rename(folder)
            return folder
        except OSError as error:
            if error.errno not in DISK_FULL or not (session / PULSE).exists():
                raise
            time.sleep(_FULL_DISK_S)  # a full disk is a pause


def _introduction(node: str, environment: Mapping[str, str]) -> Arrived:
    return Arrived(
        job=environment.get("SLURM_ARRAY_JOB_ID", ""),
        place=int(environment.get("SLURM_ARRAY_TASK_ID", "0")),
        restarts=int(environment.get("SLURM_RESTART_COUNT", "0")),
        node=node,
        memory_bytes=memory_limit(1),
    )


def _await_folder(session: Path, node: str) -> None:
    until = time.monotonic() + _FOLDER_S
    while not (session / PULSE).exists():
        if time.monotonic() > until:
            sys.exit(
                f"Driver and workers share a folder. Node {node} does not see {session}: give --out on a file system "
                "that all nodes have, at the same path."
            )
        time.sleep(0.5)


if __name__ == "__main__":
    main(sys.argv[1:])
