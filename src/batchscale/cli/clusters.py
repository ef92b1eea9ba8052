"""The hosts of ``run --cluster`` and ``train --cluster``: find the cluster, connect its hosts, and end together."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from batchscale.errors import BatchscaleError, RunError

if TYPE_CHECKING:
    from batchscale.spec.experiment import Experiment
    from batchscale.workers.multihost.cluster import Cluster
    from batchscale.workers.multihost.hosts import Hosts

HELP = "The hosts that train together: a JSON or TOML file or text; auto: from the environment; none: only this host."


def look_up(text: str) -> "Cluster | None":
    """Return the cluster of ``--cluster``: described there or in the environment; None for a single process."""
    from batchscale.workers.multihost.cluster import read_cluster
    from batchscale.workers.multihost.environment import find_cluster, refuse_key_file

    if text == "none":
        return None
    cluster = find_cluster(os.environ) if text == "auto" else read_cluster(text)
    if cluster is not None:
        refuse_key_file(os.environ)
    return cluster


@contextlib.contextmanager
def together_for(cluster: "Cluster | None", experiment: "Experiment") -> "Iterator[Hosts | None]":
    """Connect the hosts that run a whole experiment; None for a single process."""
    from batchscale.study.identity import normalise
    from batchscale.workers.environment import check_devices, offer_devices

    if cluster is None:
        yield None
        return
    if experiment.trainer is not None:
        raise RunError("--cluster needs an experiment for our own engine. Found a [trainer] table.")
    num_devices = check_devices(experiment.run.devices_per_trial)
    offer_devices(num_devices)
    facts = {"devices_per_trial": num_devices, "run.exact": experiment.run.exact}
    with together(cluster, normalise(experiment) | facts) as hosts:
        yield hosts


@contextlib.contextmanager
def together(cluster: "Cluster | None", facts: Mapping[str, object]) -> "Iterator[Hosts | None]":
    """Inside, all processes of the cluster are connected and JAX sees their devices; None for a single process.

    A user's mistake that one of them finds ends all of them with its message.
    """
    if cluster is None:
        yield None
        return
    from batchscale import __version__
    from batchscale.training.hosts import joined
    from batchscale.workers.multihost.hosts import connect

    version = {"the version of batchscale": __version__}
    hosts = connect(cluster, version | {name: repr(value) for name, value in facts.items()})
    try:
        with joined(hosts):
            yield hosts
    except BatchscaleError as error:
        hosts.fail(str(error), 2)
        raise
