"""The processes of a cluster as one JAX program: started together, each with its own devices.

Their signs of life are our own (``cluster.peers``): JAX would end a process that hears nothing, or whose connection to
the coordinator closes, by an abort, without saying which of the others it was. It is told to wait longer than we do,
and reaches the coordinator through a relay that stays open.
"""

import contextlib
from collections.abc import Iterator

import jax

from batchscale.cluster.description import split_address
from batchscale.cluster.peers import Peers
from batchscale.cluster.relay import Relay

PARTING_S = 20

PATIENCE = 4
"""JAX waits so many times as long as we do before it ends a process by itself."""


@contextlib.contextmanager
def joined(peers: Peers) -> Iterator[None]:
    """Inside, JAX sees the devices of all processes. What goes wrong inside ends the other processes too."""
    cluster = peers.cluster
    patience = int(PATIENCE * cluster.timeouts.lost_after_s)
    relay = None if cluster.is_chief else Relay(*split_address(peers.coordinator, "the coordinator"))
    # its watch for a preemption would take SIGTERM from whoever has a handler: the run that is to stop
    jax.config.update("jax_enable_preemption_service", False)  # type: ignore[no-untyped-call]
    jax.distributed.initialize(
        relay.address if relay else peers.coordinator,
        cluster.num_processes,
        cluster.process,
        coordinator_bind_address=peers.coordinator if cluster.is_chief else None,
        cluster_detection_method="deactivate",
        initialization_timeout=patience,
        heartbeat_timeout_seconds=patience,
        shutdown_timeout_seconds=PARTING_S,
    )
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        # A process that died takes the exchange of gradients with it, before its end is noticed: that is said first.
        peers.await_loss()
        peers.fail(f"its devices failed: {error}")
        raise
    peers.close()
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # all is done: whoever dies now is not missed
        jax.distributed.shutdown()  # type: ignore[no-untyped-call]
    if relay is not None:
        relay.close()
