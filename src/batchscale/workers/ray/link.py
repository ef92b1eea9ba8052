"""The driver's link to a Ray cluster: one that is there, or a local one that ends with the run."""

import contextlib
import importlib.util
import logging
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

from batchscale.errors import RunError, one_line
from batchscale.spec.experiment import Experiment
from batchscale.workers.ray.local_cluster import LocalCluster, own_variables

LOCAL_START_S = 0.2
"""How long the start of a local cluster is waited for at a time, so that signals are heeded meanwhile."""


def require_ray() -> None:
    """Raises RunError if the library is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise RunError("The runner 'ray' needs the library. It is not installed: pip install 'batchscale[ray]'.")


def check_ray(experiment: Experiment) -> int:
    """How many devices train a trial together on a Ray cluster.

    Raises:
        RunError: the library is not installed, or the file leaves the number to the machine.
    """
    require_ray()
    if experiment.run.devices_per_trial is None:
        raise RunError(
            "With --runner ray the devices of a trial are a number, because nodes differ. Found "
            "run.devices_per_trial = 'all'; give the number."
        )
    return experiment.run.devices_per_trial


class ClusterLink:
    """A link that is made when it is first asked for, and closed with everything that was started for it."""

    def __init__(self, address: str | None, num_cpus: int, num_gpus: int) -> None:
        require_ray()
        self._address = address
        self._before: dict[str, str | None] = {}
        self._ours = False
        self.is_up = False
        self.local: LocalCluster | None = None
        if address is None:
            self._set_variables()
            self.local = LocalCluster(num_cpus, num_gpus)

    def connect(self) -> Any | None:
        """Ray, once it can be talked to; None while a local cluster is starting.

        Raises:
            RunError: there is no cluster there, or it cannot be talked to.
        """
        address = self.local.address(LOCAL_START_S) if self.local is not None else self._address
        if address is None:
            return None
        with _own_handlers():
            import ray

            if not ray.is_initialized():
                self._ours = True
                try:
                    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
                except Exception as error:  # noqa: BLE001 - each kind of address fails in its own way
                    raise RunError(
                        f"--ray-address is a cluster that answers: 'auto', HOST:PORT or ray://HOST:PORT. Found "
                        f"{one_line(address)}: {one_line(f'{type(error).__name__}: {error}', 400)}."
                    ) from None
        self.is_up = True
        return ray

    def give_up(self) -> None:
        """The cluster is gone: Ray would end this process if it were asked to hang up."""
        self.is_up = False

    def close(self) -> None:
        """Hang up, and end a local cluster."""
        if self.is_up and self._ours:
            import ray

            with _own_handlers():
                ray.shutdown()
        self.is_up = False
        if self.local is not None:
            self.local.close()
            self.local = None
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before.clear()

    def _set_variables(self) -> None:
        variables = own_variables()
        self._before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)


@contextlib.contextmanager
def _own_handlers() -> Iterator[None]:
    """Keep our handlers of signals: Ray puts its own in the place of that of SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
