"""The hosts that train a trial together, each a process with its own devices, as one JAX program.

The engine sees them as a `HostGroup`; a `SingleHost` decides alone. Only the chief stores states: the others receive
what it read (`state_store.SharedStateStore`).

Lost processes are detected by heartbeats of our own: JAX would abort a process that receives nothing, or whose
connection to the coordinator closes, without a message about the process that was lost. JAX gets a longer timeout, and
reaches the coordinator through an address that stays open.
"""

import contextlib
from collections.abc import Iterator
from typing import Protocol, final

import jax

SHUTDOWN_S = 20

TIMEOUT_FACTOR = 4
"""JAX waits this many times longer than we do before it ends a process by itself."""


class HostGroup(Protocol):
    """All processes call the same methods in the same order with the same tags; all get the same result."""

    @property
    def is_chief(self) -> bool:
        """True if this process writes."""

    def any(self, tag: str, mine: bool) -> bool:
        """Return True if any process passed True."""

    def chief_value(self, tag: str, mine: int) -> int:
        """Return the chief's number."""

    def share(self, tag: str, payload: bytes) -> bytes:
        """Return the chief's bytes."""


@final
class SingleHost:
    """A process that trains alone."""

    is_chief = True

    def any(self, tag: str, mine: bool) -> bool:
        """Return its own value."""
        del tag
        return mine

    def chief_value(self, tag: str, mine: int) -> int:
        """Return its own number."""
        del tag
        return mine

    def share(self, tag: str, payload: bytes) -> bytes:
        """Return its own bytes."""
        del tag
        return payload


class ProcessGroup(Protocol):
    """The processes that form one JAX program, and their means to detect and report a loss."""

    @property
    def process(self) -> int:
        """The number of this process."""

    @property
    def num_processes(self) -> int:
        """The number of all processes."""

    @property
    def lost_after_s(self) -> float:
        """The time after which a process that is not responding counts as lost."""

    def open_coordinator(self) -> tuple[str, str | None]:
        """Return the address where JAX reaches its coordinator, and the one where it listens, if it does so here."""

    def close_coordinator(self) -> None:
        """End the connection of JAX to its coordinator."""

    def await_loss(self) -> None:
        """Wait as long as it takes to detect the loss of another process, which ends this one."""

    def fail(self, reason: str) -> None:
        """End all processes, because this one cannot continue."""

    def close(self) -> None:
        """Disconnect from the others: from here on none counts as lost."""


@contextlib.contextmanager
def joined(group: ProcessGroup) -> Iterator[None]:
    """Inside, JAX sees the devices of all processes. Whoever catches another error of the body must end the process.

    It must do so without JAX's shutdown, which waits for processes that have left, and aborts.
    """
    timeout_s = int(TIMEOUT_FACTOR * group.lost_after_s)
    address, bind_address = group.open_coordinator()
    # JAX's preemption service would replace the run's own handler of SIGTERM
    jax.config.update("jax_enable_preemption_service", False)  # type: ignore[no-untyped-call]
    try:
        jax.distributed.initialize(
            address,
            group.num_processes,
            group.process,
            coordinator_bind_address=bind_address,
            cluster_detection_method="deactivate",
            initialization_timeout=timeout_s,
            heartbeat_timeout_seconds=timeout_s,
            shutdown_timeout_seconds=SHUTDOWN_S,
        )
        yield
    except jax.errors.JaxRuntimeError as error:
        # A lost process breaks the exchange of gradients before its end is detected: the loss is reported first.
        group.await_loss()
        group.fail(f"its devices failed: {error}")
        raise
    group.close()
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # the work is done: a process may end now
        jax.distributed.shutdown()  # type: ignore[no-untyped-call]
    group.close_coordinator()
