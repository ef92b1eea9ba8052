"""A cluster cut into groups of as many processes, each of which trains trials of its own.

All processes stay connected to the chief and watch each other as before: one that is lost ends its group, and all of
them if it is the chief's. Those of a group have a meeting of their own besides, at the first of them, its lead.
"""

import secrets
from dataclasses import dataclass, replace
from functools import partial

from batchscale.cluster.description import Cluster, join_address
from batchscale.cluster.meeting import free_port, host_meeting, join_meeting
from batchscale.cluster.peers import Peers
from batchscale.errors import RunError

TOKEN_BYTES = 32


@dataclass(frozen=True)
class Group:
    """The group of this process: ``number`` of ``count``, each of ``size``; ``peers`` is None where it is alone."""

    number: int
    count: int
    size: int
    peers: Peers | None

    @property
    def is_led_here(self) -> bool:
        """Whether this process speaks for its group."""
        return self.peers is None or self.peers.is_chief

    def lead_of(self, number: int) -> int:
        """The process that leads a group."""
        return number * self.size

    def companions(self, process: int) -> range:
        """The processes that cannot go on without this one; none where that ends the chief, and all with it."""
        first = process // self.size * self.size
        return range(first, first + self.size) if first else range(0)


def split_peers(whole: Peers, size: int) -> Group:
    """The group of this process; all processes of the cluster call it together.

    Raises:
        RunError: the processes cannot be cut into groups of this size.
    """
    cluster = whole.cluster
    if cluster.num_processes % size:
        fitting = [str(n) for n in range(1, cluster.num_processes + 1) if cluster.num_processes % n == 0]
        raise RunError(
            f"run.hosts_per_trial cuts a cluster into groups of as many hosts. Found {size}, of "
            f"{cluster.num_processes} hosts; give one of {', '.join(fitting)}."
        )
    number, place = divmod(cluster.process, size)
    count = cluster.num_processes // size
    if size == 1:
        return Group(number, count, size, None)
    mine = join_address(whole.own_host, free_port(whole.own_host)) if place == 0 else ""
    addresses = [found.decode() for found in whole.gather("groups", mine.encode())]
    token = whole.share("group secret", secrets.token_bytes(TOKEN_BYTES))
    first = number * size
    group = Cluster(
        addresses[first], size, place, "run.hosts_per_trial", cluster.names[first : first + size], cluster.timeouts
    )
    group = replace(group, token=token, first=first)
    meeting = (host_meeting if place == 0 else join_meeting)(group, {})
    return Group(number, count, size, Peers(group, meeting, partial(whole.pass_on, all_end=number == 0)))
