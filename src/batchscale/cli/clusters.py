"""What commands share that run on several hosts: finding the cluster, meeting the others, and leaving together."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from batchscale.errors import BatchscaleError, RunError

if TYPE_CHECKING:
    from batchscale.cluster import Cluster, Peers
    from batchscale.spec import Experiment

HELP = "The hosts that train together: a JSON or TOML file or text; auto: as the environment says; none: no others."


def look_up(text: str) -> "Cluster | None":
    """The cluster of ``--cluster``: described there, found in the environment, or None for a single process."""
    from batchscale.cluster import find_cluster, read_cluster, with_token

    if text == "none":
        return None
    found = find_cluster(os.environ) if text == "auto" else read_cluster(text)
    return None if found is None else with_token(found, os.environ)


def together_for(
    cluster: "Cluster | None", experiment: "Experiment"
) -> "contextlib.AbstractContextManager[Peers | None]":
    """The hosts that run a whole experiment: they have the same file, and each trial is trained by all of them."""
    from batchscale.protocol.identity import normalise
    from batchscale.runners.environment import check_devices, offer_devices

    if cluster is None:
        return contextlib.nullcontext()
    if experiment.trainer is not None:
        raise RunError("--cluster is for our own engine; a script of your own starts its own processes.")
    num_devices = check_devices(experiment.run.devices_per_trial)
    offer_devices(num_devices)
    facts = {"devices_per_trial": num_devices, "run.exact": experiment.run.exact}
    return together(cluster, normalise(experiment) | facts)


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
