"""The Ray runner: a worker on every place of a running cluster that has room for one.

Nodes may come and go at any time: new ones get workers, the jobs of lost ones fail as preempted, through no fault of
their trials. Nothing on a node is ever needed to resume.
"""

import contextlib
import logging
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

from batchscale.errors import RunError, one_line
from batchscale.spec.experiment import Experiment
from batchscale.study.failure import Failure
from batchscale.workers.handle import is_out_of_memory
from batchscale.workers.messages import Ready, Refused, Reply, decode_reply
from batchscale.workers.process_runner import ProcessRunner
from batchscale.workers.ray.address import AUTO, require_ray
from batchscale.workers.ray.handle import RayWorker, Stage, check_messages, check_node, end_actors
from batchscale.workers.ray.pool import ClusterLostError, RayWorkerPool
from batchscale.workers.ray.setup import make_ray_setup
from batchscale.workers.runner import Event, LossReason, Setup

END_S = 5.0
"""The longest wait for the end of actors."""


@dataclass(frozen=True)
class RaySettings:
    """The address of the cluster, and the largest number of workers."""

    address: str = AUTO
    workers: int | None = None


def check_ray(experiment: Experiment) -> int:
    """Return the number of devices that train a trial together on a Ray cluster.

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


class RayConnection:
    """The connection of this process to a cluster; one that the caller had made before stays open."""

    def __init__(self, address: str) -> None:
        require_ray()
        self._is_ours = False
        with _keep_signal_handlers():
            import ray

            if not ray.is_initialized():
                self._is_ours = True
                try:
                    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
                except Exception as error:  # noqa: BLE001 - each kind of address fails in its own way
                    reason = one_line(f"{type(error).__name__}: {error}", 400)
                    raise RunError(
                        f"--runner ray needs a running Ray cluster. Found none at --ray-address {one_line(address)} "
                        f"({reason}). Start one on this machine with 'ray start --head', or give the address of "
                        "another: HOST:PORT or ray://HOST:PORT."
                    ) from None
        self.ray: Any = ray

    def close(self, *, is_lost: bool) -> None:
        """Disconnect, unless the cluster is lost: Ray would end this process."""
        if self._is_ours and not is_lost:
            with _keep_signal_handlers():
                self.ray.shutdown()


@contextlib.contextmanager
def _keep_signal_handlers() -> Iterator[None]:
    """Restore our signal handlers at the end: Ray replaces that of SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@final
class RayRunner(ProcessRunner[RayWorker]):
    """Workers on a Ray cluster; fewer of them after one ran out of memory, which those of a node share."""

    def __init__(self, setup: Setup, settings: RaySettings) -> None:
        super().__init__()
        self._setup = make_ray_setup(setup)
        self._is_lost = False
        self._setup.write_markers()  # before anything is started: states must have a place
        try:
            self._connection = RayConnection(settings.address)
        except BaseException:
            self._setup.remove_markers()
            raise
        self._ray = self._connection.ray
        try:
            self._pool = RayWorkerPool(self._ray, self._setup, settings.workers, self._workers, self._notices)
        except BaseException:
            self._disconnect()
            raise

    def wait(self, timeout_s: float) -> list[Event]:
        """Return the events of the workers; adapt the workers to the nodes of the cluster."""
        if self._closed:
            return []
        events, self._events = self._events, []
        try:
            if not self._stopping:
                self._pool.update()
            for reference in self._answered_calls(0.0 if events else timeout_s):
                worker = self._pool.calls.pop(reference, None)
                if worker is not None:  # else it was removed by another answer
                    events += self._handle_answer(worker, reference)
        except _lost_errors(self._ray) as error:
            self._is_lost = True
            raise RunError(
                f"The Ray cluster must run as long as the run. It was lost: {one_line(error, 300)}. Nothing that was "
                "recorded is lost; run the same command again."
            ) from None
        return events

    def stop(self) -> None:
        """Stop every worker that has a node, once; the others are removed."""
        if not self._stopping:
            self._pool.remove_unplaced()
        super().stop()

    def kill(self) -> None:
        """Kill all workers, from any thread; none is replaced from now on."""
        self._stopping = True
        end_actors(self._ray, list(self._workers.values()))

    def close(self) -> None:
        """Kill all workers, wait for their end, and disconnect."""
        if self._closed:
            return
        self._closed = True
        self.kill()
        calls = list(self._pool.calls)
        if calls:
            with contextlib.suppress(self._ray.exceptions.RayError, ConnectionError):
                self._ray.wait(calls, num_returns=len(calls), timeout=END_S)
        self._pool.calls.clear()
        self._workers.clear()
        self._disconnect()

    def _disconnect(self) -> None:
        self._connection.close(is_lost=self._is_lost)
        self._setup.remove_markers()

    def _answered_calls(self, timeout_s: float) -> list[Any]:
        """Wait for the first answered call, and return all that are answered."""
        calls = list(self._pool.calls)
        if not calls:
            time.sleep(timeout_s)
            return []
        first, rest = self._ray.wait(calls, num_returns=1, timeout=timeout_s)
        if first and rest:
            return [*first, *self._ray.wait(rest, num_returns=len(rest), timeout=0)[0]]
        return list(first)

    def _handle_answer(self, worker: RayWorker, reference: Any) -> list[Event]:
        pool = self._pool
        try:
            answer = self._ray.get(reference)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError) as error:
            # a large answer is stored on the worker's node, and is lost with it before the actor's end is reported
            return pool.lose(worker, *_explain_loss(error), stopping=self._stopping)
        except (self._ray.exceptions.RayTaskError, self._ray.exceptions.RuntimeEnvSetupError) as error:
            return pool.lose(worker, LossReason.DIED, Failure(one_line(error, 600)), stopping=self._stopping)
        if worker.stage is Stage.PLACING:
            pool.start(worker, check_node(answer))
            return []
        if worker.stage is Stage.STARTING:
            worker.stage = Stage.CONNECTED
            pool.receive(worker)
            return []
        messages, end = check_messages(answer)
        events = [event for data in messages for event in self._handle_reply(worker, decode_reply(data))]
        if worker.info.worker_id not in pool.workers:
            return events
        if end is not None:
            return events + pool.lose(worker, LossReason.DIED, end, stopping=self._stopping)
        pool.receive(worker)
        return events

    def _handle_reply(self, worker: RayWorker, reply: Reply) -> list[Event]:
        events = worker.handle_reply(reply)
        if isinstance(reply, Ready):
            self._pool.handle_ready(worker, reply.states_problem)
        elif isinstance(reply, Refused):
            self._pool.refuse(worker, reply.reason)
        self._recycle(worker, reply, self._pool.memory_share(worker))
        if is_out_of_memory(reply) and self._pool.lower_limit():
            worker.drain()
        return events


def _lost_errors(ray: Any) -> tuple[type[Exception], ...]:
    """Return the errors that mean that the cluster does not respond any more."""
    return ClusterLostError, ray.exceptions.RaySystemError, ray.exceptions.RpcError, ConnectionError


def _explain_loss(error: Exception) -> tuple[LossReason, Failure]:
    """Classify the loss of an actor. Trials are trained in another process than the actor's: they did not cause it."""
    text = " ".join(str(error).split())
    cause = re.search(r"The actor (is dead|died) because .*", text)
    reason = one_line(cause[0] if cause else text, 300)
    return (LossReason.OUT_OF_MEMORY if "low on memory" in text else LossReason.PREEMPTED), Failure(reason)
