"""A worker as a job of SLURM: it registers in the run's folder, serves the driver, and leaves on a signal of SLURM.

Started by the script of `session.worker_script` with the folder of the driver's session, the number of devices, and the
settings of heartbeats. Writes no records; nothing that it holds is needed to resume. A worker whose driver has gone
leaves within a stated time.
"""

import json
import os
import select
import signal
import socket
import sys
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from batchscale.errors import RunError
from batchscale.machine import DISK_FULL, name_host
from batchscale.workers.environment import memory_limit, worker_environment
from batchscale.workers.messages import Begin, Drain, Instruction, Leave, Reply, decode_instruction
from batchscale.workers.runner import TRAINER_ENGINE
from batchscale.workers.slurm.channel import (
    MAX_POLL_S,
    Alive,
    ChannelReader,
    ChannelWriter,
    ExitReason,
    Leaving,
    Left,
    Registered,
    WorkerMessage,
    encode_message,
    make_channel,
    poll_pause_s,
)
from batchscale.workers.slurm.heartbeat import HeartbeatMonitor, HeartbeatSettings
from batchscale.workers.worker import Worker

HEARTBEAT_FILE = "pulse"
WORKERS = "workers"
EXIT_SIGNALS = {signal.SIGUSR1: ExitReason.TIME_LIMIT, signal.SIGTERM: ExitReason.CANCELLED}
_LEFT_TO_THE_DRIVER = (signal.SIGINT, signal.SIGHUP)
_FULL_DISK_S = 5.0
_FOLDER_S = 60.0
"""The longest that a new folder may take to appear on another machine."""

_REQUEUE_S = 120.0
"""The longest that a worker that has saved its states waits to be put in the queue again."""


class FolderConnection:
    """The connection of a worker to its driver, through the worker's folder.

    Signals of SLURM wake it at once, also while the main thread is deep in a computation.
    """

    def __init__(
        self, folder: Path, heartbeat: Path, settings: HeartbeatSettings, environment: Mapping[str, str]
    ) -> None:
        self._incoming = ChannelReader(folder / "in")
        self._outgoing = ChannelWriter(folder / "out")
        self._driver = HeartbeatMonitor(heartbeat, settings.leave_s)
        self._settings = settings
        self._environment = environment
        self._messages: deque[Instruction] = deque()
        self._received_at = self._alive_at = self._checked_at = time.monotonic()
        self.exit_reason: ExitReason | None = None
        self.drained = False
        self._is_finished = False
        self._signals, wake = socket.socketpair()
        self._signals.setblocking(False)
        wake.setblocking(False)
        self._wake = wake  # stays open for as long as signals come
        for number in EXIT_SIGNALS:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno())

    def recv(self) -> Instruction:
        """Return the next instruction.

        Raises:
            EOFError: the driver has gone.
        """
        while not self._messages:
            self._sleep()
            self._read()
            self._check_heartbeats()
        message = self._messages.popleft()
        self.drained = isinstance(message, Drain)
        return message

    def send(self, reply: Reply) -> None:
        """Send a reply to the driver."""
        self.write(reply)

    def write(self, message: WorkerMessage) -> None:
        """Write a message; on a full disk wait for room, as long as there is a driver.

        Raises:
            OSError: it cannot be written, or the driver has gone.
        """
        data = encode_message(message)
        while True:
            try:
                return self._outgoing.write(data)
            except OSError as error:
                if error.errno not in DISK_FULL or not self._driver.is_alive():
                    raise
                time.sleep(MAX_POLL_S)

    def finish(self) -> None:
        """Write the last message: from now on this process may end at any moment."""
        self.write(Left())
        self._is_finished = True

    def _sleep(self) -> None:
        idle_s = time.monotonic() - self._received_at
        ready, _, _ = select.select([self._signals], [], [], poll_pause_s(idle_s))
        if ready:
            for number in self._signals.recv(100):
                self._leave(EXIT_SIGNALS.get(signal.Signals(number)))

    def _leave(self, reason: ExitReason | None) -> None:
        if self._is_finished:
            raise EOFError
        if reason is not None and self.exit_reason is None:
            self.exit_reason = reason
            self._messages.append(Leave())
            self.write(Leaving(reason))

    def _read(self) -> None:
        try:
            lines = self._incoming.read()
        except FileNotFoundError:
            raise EOFError from None  # the driver has closed, or given this worker up
        except OSError:
            lines = []  # the heartbeat decides
        if lines:
            self._received_at = time.monotonic()
        try:
            self._messages.extend(self._complete(decode_instruction(line)) for line in lines)
        except RunError as error:
            raise EOFError(str(error)) from None

    def _complete(self, message: Instruction) -> Instruction:
        """Return the message with the environment of this job, in which a trainer's scripts run."""
        if not isinstance(message, Begin) or message.setup.engine != TRAINER_ENGINE:
            return message
        options = {**message.setup.options, "environment": json.dumps(dict(self._environment))}
        return replace(message, setup=replace(message.setup, options=options))

    def _check_heartbeats(self) -> None:
        now = time.monotonic()
        if now - self._checked_at >= min(1.0, self._settings.interval_s):
            self._checked_at = now
            if not self._driver.is_alive():
                raise EOFError
        if now - self._alive_at >= self._settings.interval_s:
            self._alive_at = now
            self.write(Alive())


def worker_arguments(session: Path, num_devices: int, settings: HeartbeatSettings) -> list[str]:
    """Return the arguments of `main`."""
    return [str(session), str(num_devices), str(settings.interval_s), str(settings.leave_s)]


def main(arguments: Sequence[str]) -> None:
    """Serve the driver of a session; the process ends here."""
    session, num_devices = Path(arguments[0]), int(arguments[1])
    settings = HeartbeatSettings(float(arguments[2]), float(arguments[3]))
    for number in _LEFT_TO_THE_DRIVER:
        signal.signal(number, signal.SIG_IGN)
    environment = dict(os.environ)
    os.environ.update(worker_environment(0, num_devices))
    node = environment.get("SLURMD_NODENAME") or name_host()
    connection = FolderConnection(_make_folder(session, node), session / HEARTBEAT_FILE, settings, environment)
    connection.write(_registration(node, environment))
    Worker(connection, node).serve()
    connection.finish()
    if connection.exit_reason is ExitReason.TIME_LIMIT:
        time.sleep(_REQUEUE_S)  # the driver puts this job in the queue again, which ends it
    sys.stdout.flush()
    sys.stderr.flush()
    if connection.drained:  # a fresh process in the same job
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - arguments, no shell
    os._exit(0)  # no waiting for threads of libraries


def _make_folder(session: Path, node: str) -> Path:
    """Make the folder of this worker, which appears whole."""
    _await_session(session, node)
    name = uuid.uuid4().hex
    temporary, folder = session / name, session / WORKERS / name
    while True:
        try:
            temporary.mkdir(mode=0o700, exist_ok=True)
            for channel in ("in", "out"):
                make_channel(temporary / channel)
            temporary.rename(folder)
            return folder
        except OSError as error:
            if error.errno not in DISK_FULL or not (session / HEARTBEAT_FILE).exists():
                raise
            time.sleep(_FULL_DISK_S)  # wait until there is room


def _registration(node: str, environment: Mapping[str, str]) -> Registered:
    return Registered(
        job=environment.get("SLURM_ARRAY_JOB_ID", ""),
        place=int(environment.get("SLURM_ARRAY_TASK_ID", "0")),
        restarts=int(environment.get("SLURM_RESTART_COUNT", "0")),
        node=node,
        memory_bytes=memory_limit(1),
    )


def _await_session(session: Path, node: str) -> None:
    until = time.monotonic() + _FOLDER_S
    while not (session / HEARTBEAT_FILE).exists():
        if time.monotonic() > until:
            sys.exit(
                f"Driver and workers share a folder. Node {node} does not see {session}: give --out on a file system "
                "that all nodes have, at the same path."
            )
        time.sleep(0.5)


if __name__ == "__main__":
    main(sys.argv[1:])
