"""Processes that run the real command as hosts of a cluster.

They are forked from one process that has loaded the libraries: loading them is most of what a short command does. That
process has no thread but its first.
"""

import json
import multiprocessing
import os
import socket
import sys
import time
from pathlib import Path

LOADED = ["jax", "flax.nnx", "optax", "pydantic", "typer"]
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(LOADED)


def run_command(words, log, folder=None):
    """``batchscale WORDS`` in this process, with what it says in a file."""
    with Path(log).open("ab") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
            stream.reconfigure(line_buffering=True)
    sys.argv = ["batchscale", *words]
    if folder is not None:
        os.chdir(folder)
    from batchscale.cli.app import main

    main()


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Hosts:
    """Processes of one command; each has a folder of its own, as on hosts without a shared disk.

    ``words`` is the command without ``--cluster`` and ``--out``, or a function of the place that gives it.
    """

    def __init__(self, count, folder, words, join_s=120, lost_after_s=4):
        names = [f"127.0.0.1:{port}" for port in free_ports(count)]
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.processes = folder, []
        self._shown_before = self.count_rows()
        for place in range(count):
            cluster = {"processes": names, "process": place, "lost_after_s": lost_after_s, "join_s": join_s}
            command = [*map(str, words(place) if callable(words) else words)]
            command += ["--cluster", json.dumps(cluster) if count > 1 else "none", "--out", str(folder / str(place))]
            process = FORKED.Process(target=run_command, args=(command, str(folder / f"{place}.log"), str(folder)))
            process.start()
            self.processes.append(process)

    def log(self, place):
        file = self.folder / f"{place}.log"
        return file.read_text() if file.exists() else ""

    def logs(self):
        return [self.log(place) for place in range(len(self.processes))]

    def wait(self, seconds=600.0):
        """The exit codes of all; whoever is still there after that is ended."""
        until = time.monotonic() + seconds
        try:
            return [self.wait_for(place, until - time.monotonic()) for place in range(len(self.processes))]
        finally:
            self.end()

    def wait_for(self, place, seconds):
        """The exit code of one."""
        self.processes[place].join(max(0.0, seconds))
        assert self.processes[place].exitcode is not None, f"process {place} goes on: {self.logs()}"
        return self.processes[place].exitcode

    def signal(self, place, number):
        os.kill(self.processes[place].pid, number)

    def end(self):
        for process in self.processes:
            process.kill()
            process.join()

    def count_rows(self):
        return self.log(0).count("examples/s")

    def await_rows(self, count, seconds=300.0):
        """Wait until the chief has shown so many measurements since it was started."""
        until = time.monotonic() + seconds
        while self.count_rows() < self._shown_before + count:
            assert time.monotonic() < until, self.log(0)
            assert self.processes[0].exitcode is None, self.log(0)
            time.sleep(0.02)
