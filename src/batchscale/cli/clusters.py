"""The hosts of ``run --cluster`` and ``train --cluster``: find the cluster, connect its hosts, and end together.

A user's mistake that any host finds ends all of them with its message and exit code 2: before they have met, it is
reported where they meet; later, over their connections.
"""

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

import typer

from batchscale.cli.exit import USER_MISTAKE, describe_error
from batchscale.errors import REQUEUE, BatchscaleError, RunError

if TYPE_CHECKING:
    from batchscale.spec.experiment import Experiment
    from batchscale.workers.multihost.cluster import Cluster
    from batchscale.workers.multihost.hosts import Hosts

HELP = "The hosts that train together: a JSON or TOML file or text; auto: from the environment; none: only this host."


def look_up(text: str) -> "Cluster | None":
    """Return the cluster of ``--cluster``: described there or in the environment; None for a single process.

    Of several processes, each writes its results alone to standard output from here on.
    """
    from batchscale.workers.multihost.cluster import read_cluster
    from batchscale.workers.multihost.environment import find_cluster, refuse_key_file

    if text == "none":
        return None
    cluster = find_cluster(os.environ) if text == "auto" else read_cluster(text)
    if cluster is not None:
        refuse_key_file(os.environ)
        _reserve_stdout()
    return cluster


def _reserve_stdout() -> None:
    """Let file descriptor 1 lead to standard error: libraries of JAX (Gloo) print there. ``sys.stdout`` stays."""
    try:
        if sys.stdout.fileno() != 1:
            return
        sys.stdout.flush()
        reserved = os.dup(1)
        os.dup2(2, 1)
    except (OSError, ValueError, AttributeError):  # no file: closed, or replaced by whoever called this process's main
        return
    before = sys.stdout
    sys.stdout = open(  # noqa: SIM115, PTH123 - of a file descriptor, until the process ends
        reserved, "w", encoding=before.encoding, errors=before.errors, buffering=1 if before.line_buffering else -1
    )


@contextlib.contextmanager
def reporting(cluster: "Cluster | None") -> "Iterator[None]":
    """Inside, the processes have not met: a mistake is reported to them, so that they do not wait for this one."""
    try:
        yield
    except (BatchscaleError, OSError) as error:
        if cluster is None:
            raise
        from batchscale.workers.multihost.rendezvous import report_problem

        _print_error(describe_error(error))
        report_problem(cluster, describe_error(error))
        raise typer.Exit(USER_MISTAKE) from None


@contextlib.contextmanager
def together_for(cluster: "Cluster | None", experiment: "Experiment") -> "Iterator[Hosts | None]":
    """Connect the hosts that run a whole experiment; None for a single process."""
    from batchscale.study.identity import normalise
    from batchscale.workers.environment import check_devices, offer_devices

    if cluster is None:
        yield None
        return
    with reporting(cluster):
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

    Any error inside ends all of them. This process then ends here, at once: JAX's own shutdown, at the end of a Python
    process, would wait for the others and abort.
    """
    if cluster is None:
        yield None
        return
    from batchscale import __version__
    from batchscale.training.hosts import joined
    from batchscale.workers.multihost.hosts import connect

    version = {"the version of batchscale": __version__}
    try:
        hosts = connect(cluster, version | {name: repr(value) for name, value in facts.items()}, _print_error)
    except RunError:
        raise typer.Exit(USER_MISTAKE) from None  # it is printed
    try:
        with joined(hosts):
            yield hosts
    except BaseException as error:  # noqa: BLE001 - the process ends here
        _leave(hosts, error)


def _leave(hosts: "Hosts", error: BaseException) -> NoReturn:
    """End all processes because of an error in this one."""
    if isinstance(error, BatchscaleError | OSError):
        text = describe_error(error)
        hosts.leave(f"Error: {text}", text, USER_MISTAKE)
    if isinstance(error, typer.Exit | SystemExit | KeyboardInterrupt):
        hosts.leave("Stopped.", "it was stopped.", getattr(error, "exit_code", REQUEUE))
    hosts.leave("".join(traceback.format_exception(error)), f"{type(error).__name__}: {error}", 1)


def _print_error(text: str) -> None:
    typer.echo(f"Error: {text}", err=True)
