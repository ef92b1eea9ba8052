"""The actor of a worker: it describes its node, starts a worker process there, and forwards bytes in both directions.

Ray sends it to the nodes by its content, so that a node without batchscale, or with another version of it, can still
report that. It therefore imports the standard library alone, and batchscale only after the version was checked. It
never parses the messages that it forwards.
"""

import asyncio
import contextlib
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import threading
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

WORKER = "batchscale.workers.ray.worker"
NOT_URGENT = (b'["WorkerActivity"', b'["Started"')
"""The beginnings of messages that may wait a little for others."""


class WorkerActor:
    """One worker of a node. All methods run on one event loop."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._unsent: dict[int, bytes] = {}
        self._sent = 0
        self._received: list[bytes] = []
        self._end: tuple[str, tuple[str, ...]] | None = None
        self._urgent = asyncio.Event()

    async def describe_node(self, marker: str | None, content: str) -> dict[str, Any]:
        """Return the node's id and name, its version of batchscale, and whether it sees the driver's marker."""
        import ray

        try:
            version = metadata.version("batchscale")
        except metadata.PackageNotFoundError:
            version = ""
        sees_marker = False
        if marker is not None:
            with contextlib.suppress(OSError):
                sees_marker = Path(marker).read_text() == content
        node = ray.get_runtime_context().get_node_id()
        host = platform.node()  # as machine.name_host, which must not be imported yet
        return {"node": node, "host": host, "version": version, "sees_marker": sees_marker, "pid": os.getpid()}

    async def start_worker(self, place: int, num_devices: int, hide_accelerators: bool) -> int:
        """Start the worker process and return its id; it sees no accelerators if none were requested."""
        outer = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        if hide_accelerators:
            outer["CUDA_VISIBLE_DEVICES"] = ""
        environment = {**outer, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        ours, theirs = socket.socketpair()
        log = tempfile.TemporaryFile()  # noqa: SIM115 - without a name: it is gone when the last process is
        command = [sys.executable, "-u", "-m", WORKER, str(theirs.fileno()), str(place), str(num_devices)]
        with theirs:
            process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        self._connection = Connection(ours.detach())
        self._connection.send_bytes(json.dumps(outer).encode())
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop, process, log.fileno()), daemon=True).start()
        self._log = log
        self._forward()
        return process.pid

    async def send(self, number: int, message: bytes) -> None:
        """Forward a message to the worker in the order of the numbers: calls may overtake each other."""
        self._unsent[number] = message
        self._forward()

    def _forward(self) -> None:
        while self._connection is not None and self._sent in self._unsent:
            data = self._unsent.pop(self._sent)
            self._sent += 1
            with contextlib.suppress(OSError):  # the worker is gone, which its end reports
                self._connection.send_bytes(data)

    async def receive(self, collect_s: float) -> tuple[list[bytes], tuple[str, tuple[str, ...]] | None]:
        """Return the worker's messages since the last call, and its end; urgent messages and the end at once."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._urgent.wait(), collect_s)
        messages, self._received = self._received, []
        if self._end is None:
            self._urgent.clear()
        return messages, self._end

    def _listen(self, loop: asyncio.AbstractEventLoop, process: "subprocess.Popen[bytes]", log: int) -> None:
        assert self._connection is not None
        with contextlib.suppress(EOFError, OSError):
            while True:
                loop.call_soon_threadsafe(self._add, self._connection.recv_bytes())
        process.kill()
        from batchscale.log_tail import open_log
        from batchscale.workers.handle import describe_exit

        failure = describe_exit(process.wait(), open_log(log))
        loop.call_soon_threadsafe(self._finish, failure.message, failure.log_lines)

    def _add(self, message: bytes) -> None:
        self._received.append(message)
        if not message.startswith(NOT_URGENT):
            self._urgent.set()

    def _finish(self, text: str, log_lines: tuple[str, ...]) -> None:
        self._end = text, log_lines
        self._urgent.set()
