"""The actor of a worker: it looks at its node, starts a worker process there, and passes bytes on between both ends.

Sent to the nodes by what it contains, so that a node without batchscale, or with another version of it, can still say
so: it therefore imports the standard library alone, and ours only when it is known to be the same. It never looks into
the messages that it passes on.
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
NEWS = (b'["WorkerActivity"', b'["Started"')
"""How messages begin that may wait a little for others."""


class NodeActor:
    """One worker of a node, as Ray sees it. All methods run on one event loop."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._unsaid: dict[int, bytes] = {}
        self._said = 0
        self._heard: list[bytes] = []
        self._ended: tuple[str, tuple[str, ...]] | None = None
        self._urgent = asyncio.Event()

    async def look(self, mark: str | None, content: str) -> dict[str, Any]:
        """What must be known of the node: who it is, which version it has, whether it sees the driver's folder."""
        import ray

        try:
            version = metadata.version("batchscale")
        except metadata.PackageNotFoundError:
            version = ""
        sees = False
        if mark is not None:
            with contextlib.suppress(OSError):
                sees = Path(mark).read_text() == content
        node = ray.get_runtime_context().get_node_id()
        host = platform.node()  # what name_host says, which must not be imported yet
        return {"node": node, "host": host, "version": version, "sees": sees, "pid": os.getpid()}

    async def begin(self, place: int, num_devices: int, hidden: bool) -> int:
        """Start the worker process; its id. With ``hidden`` it sees no accelerators: none were asked for."""
        outer = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        if hidden:
            outer["CUDA_VISIBLE_DEVICES"] = ""
        environment = {**outer, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        ours, theirs = socket.socketpair()
        log = tempfile.TemporaryFile()  # noqa: SIM115 - without a name: it is gone when the last process is
        words = [sys.executable, "-u", "-m", WORKER, str(theirs.fileno()), str(place), str(num_devices)]
        with theirs:
            process = subprocess.Popen(
                words,
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
        self._pass_on()
        return process.pid

    async def tell(self, number: int, message: bytes) -> None:
        """Pass a message on to the worker, each after the one with the number before: calls may overtake each other."""
        self._unsaid[number] = message
        self._pass_on()

    def _pass_on(self) -> None:
        while self._connection is not None and self._said in self._unsaid:
            data = self._unsaid.pop(self._said)
            self._said += 1
            with contextlib.suppress(OSError):  # the worker is gone, which is said by its end
                self._connection.send_bytes(data)

    async def news(self, patience_s: float) -> tuple[list[bytes], tuple[str, tuple[str, ...]] | None]:
        """What the worker has said since, and how it ended if it did; answers and the end come at once."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._urgent.wait(), patience_s)
        heard, self._heard = self._heard, []
        if self._ended is None:
            self._urgent.clear()
        return heard, self._ended

    def _listen(self, loop: asyncio.AbstractEventLoop, process: "subprocess.Popen[bytes]", log: int) -> None:
        assert self._connection is not None
        with contextlib.suppress(EOFError, OSError):
            while True:
                loop.call_soon_threadsafe(self._hear, self._connection.recv_bytes())
        process.kill()
        from batchscale.log_tail import open_log
        from batchscale.workers.death import describe_death

        failure = describe_death(process.wait(), open_log(log))
        loop.call_soon_threadsafe(self._end, failure.message, failure.log_lines)

    def _hear(self, message: bytes) -> None:
        self._heard.append(message)
        if not message.startswith(NEWS):
            self._urgent.set()

    def _end(self, words: str, log_lines: tuple[str, ...]) -> None:
        self._ended = words, log_lines
        self._urgent.set()
