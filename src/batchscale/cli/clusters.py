"""What commands share that run on several hosts: finding the cluster, meeting the others, and leaving together."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from batchscale.errors import BatchscaleError, RunError

if TYPE_CHECKING:
    from batchscale.cluster.description import Cluster
    from batchscale.cluster.groups import Group
    from batchscale.cluster.peers import Peers
    from batchscale.spec.experiment import Experiment

HELP = "The hosts that train together: a JSON or TOML file or text; auto: as the environment says; none: no others."


def look_up(text: str) -> "Cluster | None":
    """The cluster of ``--cluster``: described there, found in the environment, or None for a single process."""
    from batchscale.cluster.description import read_cluster, with_token
    from batchscale.cluster.environment import find_cluster

    if text == "none":
        return None
    found = find_cluster(os.environ) if text == "auto" else read_cluster(text)
    return None if found is None else with_token(found, os.environ)


@contextlib.contextmanager
def together_for(cluster: "Cluster | None", experiment: "Experiment") -> "Iterator[tuple[Peers | None, Group | None]]":
    """The hosts that run a whole experiment: all of them, and those that train a trial together if that is fewer."""
    from batchscale.study.identity import normalise
    from batchscale.workers.environment import check_devices, offer_devices

    if cluster is None:
        yield None, None
        return
    if experiment.trainer is not None:
        raise RunError("--cluster is for our own engine; a script of your own starts its own processes.")
    num_devices = check_devices(experiment.run.devices_per_trial)
    offer_devices(num_devices)
    size = experiment.run.hosts_per_trial or cluster.num_processes
    facts = {"devices_per_trial": num_devices, "run.exact": experiment.run.exact, "run.hosts_per_trial": size}
    told = normalise(experiment) | facts
    if size == cluster.num_processes:
        with together(cluster, told) as peers:
            yield peers, None
    else:
        with _in_groups(cluster, told, size) as found:
            yield found


@contextlib.contextmanager
def _in_groups(cluster: "Cluster", facts: Mapping[str, object], size: int) -> "Iterator[tuple[Peers, Group]]":
    """Inside, JAX sees the devices of the group's processes alone."""
    from batchscale.cluster.groups import split_peers
    from batchscale.training.processes import joined

    peers = _meet(cluster, facts)
    try:
        group = split_peers(peers, size)
        with contextlib.nullcontext() if group.peers is None else joined(group.peers):
            yield peers, group
        peers.close()
    except BatchscaleError as error:
        peers.fail(str(error), 2)
        raise


def _meet(cluster: "Cluster", facts: Mapping[str, object]) -> "Peers":
    from batchscale import __version__
    from batchscale.cluster.peers import connect

    return connect(cluster, {"the version of batchscale": __version__} | {name: repr(v) for name, v in facts.items()})


@contextlib.contextmanager
def together(cluster: "Cluster | None", facts: Mapping[str, object]) -> "Iterator[Peers | None]":
    """Inside, all processes of the cluster are there and JAX sees their devices; None for a single process.

    A mistake that one of them finds ends all of them with its words.
    """
    if cluster is None:
        yield None
        return
    from batchscale.training.processes import joined

    peers = _meet(cluster, facts)
    try:
        with joined(peers):
            yield peers
    except BatchscaleError as error:
        peers.fail(str(error), 2)
        raise
