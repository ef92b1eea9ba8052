"""What commands share that run on several hosts: finding the cluster, meeting the others, and leaving together."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from batchscale.errors import BatchscaleError

if TYPE_CHECKING:
    from batchscale.cluster import Cluster, Peers

HELP = "The hosts that train it together: a JSON or TOML file or text; default: what the environment says; or 'none'."


def look_up(text: str | None) -> "Cluster | None":
    """The cluster of ``--cluster``, or else of the environment; None for a single process."""
    from batchscale.cluster import find_cluster, read_cluster

    if text == "none":
        return None
    return find_cluster(os.environ) if text is None else read_cluster(text)


@contextlib.contextmanager
def together(cluster: "Cluster | None", facts: Mapping[str, object]) -> "Iterator[Peers | None]":
    """Inside, all processes of the cluster are there and JAX sees their devices; None for a single process.

    A mistake that one of them finds ends all of them with its words.
    """
    if cluster is None:
        yield None
        return
    from batchscale import __version__
    from batchscale.cluster import connect
    from batchscale.training.processes import joined

    told = {"the version of batchscale": __version__} | {name: repr(value) for name, value in facts.items()}
    peers = connect(cluster, told)
    try:
        with joined(peers):
            yield peers
    except BatchscaleError as error:
        peers.fail(str(error), 2)
        raise
