"""The worker process of an actor: ``python -m batchscale.workers.ray.worker FD PLACE NUM_DEVICES``.

The same as a local worker but for its connection to the driver, which carries validated data instead of Python objects,
and for its environment, which is that of the node. Nothing that computes is loaded before the environment is set.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from batchscale.workers.environment import worker_environment

if TYPE_CHECKING:
    from batchscale.workers.messages import Instruction, Reply


class ActorConnection:
    """A worker's connection to its driver: a pipe to the actor, which forwards the bytes."""

    def __init__(self, connection: Connection, environment: Mapping[str, str]) -> None:
        self._connection = connection
        self._environment = environment

    def recv(self) -> "Instruction":
        """Return the driver's next message; scripts of a trainer get the environment of this node."""
        from batchscale.workers.messages import Begin, decode_instruction

        message = decode_instruction(self._connection.recv_bytes())
        if isinstance(message, Begin) and message.setup.experiment.trainer is not None:
            options = {**message.setup.options, "environment": json.dumps(dict(self._environment))}
            return replace(message, setup=replace(message.setup, options=options))
        return message

    def send(self, reply: "Reply") -> None:
        """Send a reply to the driver."""
        from batchscale.workers.messages import encode_reply

        self._connection.send_bytes(encode_reply(reply))


def main(handle: int, place: int, num_devices: int) -> None:
    """Serve the pipe with this file descriptor; its first message is the environment of the node."""
    connection = Connection(handle)
    outer = {str(name): str(value) for name, value in json.loads(connection.recv_bytes()).items()}
    os.environ.update(worker_environment(place, num_devices))
    from batchscale.workers.worker import Worker

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    Worker(ActorConnection(connection, outer)).serve()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # no waiting for threads of libraries


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:4]))
