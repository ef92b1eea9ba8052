"""The hosts that train one trial together: who they are, how they find each other, how they agree. Free of JAX."""

from batchscale.cluster.description import Cluster, Timeouts, read_cluster, with_token
from batchscale.cluster.environment import find_cluster
from batchscale.cluster.groups import Group, split_peers
from batchscale.cluster.peers import Peers, connect

__all__ = [
    "Cluster",
    "Group",
    "Peers",
    "Timeouts",
    "connect",
    "find_cluster",
    "read_cluster",
    "split_peers",
    "with_token",
]
