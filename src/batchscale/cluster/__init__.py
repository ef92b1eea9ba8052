"""The hosts that train one trial together: who they are, how they find each other, how they agree. Free of JAX."""

from batchscale.cluster.description import Cluster, Timeouts, read_cluster, split_address, with_token
from batchscale.cluster.environment import find_cluster
from batchscale.cluster.folders import pack_folder, unpack_folder
from batchscale.cluster.frames import pack_parts, unpack_parts
from batchscale.cluster.groups import Group, split_peers
from batchscale.cluster.peers import Peers, connect
from batchscale.cluster.relay import Relay

__all__ = [
    "Cluster",
    "Group",
    "Peers",
    "Relay",
    "Timeouts",
    "connect",
    "find_cluster",
    "pack_folder",
    "pack_parts",
    "read_cluster",
    "split_address",
    "split_peers",
    "unpack_folder",
    "unpack_parts",
    "with_token",
]
