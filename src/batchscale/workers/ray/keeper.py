"""The process that keeps a local Ray cluster: ``python -m batchscale.workers.ray.keeper NUM_CPUS NUM_GPUS``.

It says the cluster's address on standard output and waits for the end of its standard input, which comes when the
driver closes it or dies. Then every process of the cluster is killed and its private folder removed: nothing of a local
cluster outlives its run.
"""

import contextlib
import ctypes
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path

import psutil

_PR_SET_CHILD_SUBREAPER = 36
OBJECT_STORE_BYTES = 80 * 2**20
"""The least that Ray takes; only small messages go through it."""

LONGEST_TEMP = 40
"""Ray has sockets in its folder, whose paths may have 107 characters; it needs 60 of them itself."""


def make_private_folder() -> Path:
    """A folder of this user's alone; Ray opens its own folders to everyone, so they lie in here."""
    usual = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="bs-ray-", dir=usual if len(usual) <= LONGEST_TEMP else "/tmp"))  # noqa: S108


def start(folder: Path, num_cpus: int, num_gpus: int) -> str:
    """Start a cluster of one node that listens on loopback alone; its address."""
    import ray

    ray.init(
        address="local",
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=OBJECT_STORE_BYTES,
        logging_level=logging.ERROR,
        _node_ip_address="127.0.0.1",
        _temp_dir=str(folder / "r"),
    )
    return str(ray.get_runtime_context().gcs_address)


def end_all(seconds: float = 10.0) -> None:
    """Kill everything that was started here, also what has lost its parent since."""
    me = psutil.Process()
    for _ in range(int(seconds / 0.05)):
        found = me.children(recursive=True)
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if not psutil.wait_procs(found, timeout=0.05)[1] and not me.children():
            return


def keep_until_alone(folder: Path) -> None:
    """Wait for the end of standard input, then end everything, whatever the main thread does."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    leave(folder, 0)


def leave(folder: Path, code: int) -> None:
    """End the cluster and this process, without a farewell to what is gone."""
    end_all()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(code)


def main(num_cpus: int, num_gpus: int) -> None:
    """Keep a cluster until standard input ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans of the cluster become our children
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # what is sent to everyone is the driver's business
    os.umask(0o077)
    folder = make_private_folder()
    threading.Thread(target=keep_until_alone, args=(folder,), daemon=True).start()
    try:
        address = start(folder, num_cpus, num_gpus)
    except Exception:  # noqa: BLE001 - whatever it is, the driver shows what is printed of it
        traceback.print_exc()
        leave(folder, 1)
        return
    with contextlib.suppress(OSError):
        os.write(1, f"{json.dumps(address)}\n".encode())
    threading.Event().wait()  # the processes of the cluster end with the thread that started them


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
