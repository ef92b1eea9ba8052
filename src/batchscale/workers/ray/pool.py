"""The workers of a Ray cluster: as many as its nodes hold, whatever nodes there are at the moment.

Owns the actors and decides when one is started, given up or excluded. The replies of workers are handled by the runner.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from batchscale.errors import RunError, one_line
from batchscale.spec.experiment import RayPlan
from batchscale.study.failure import Failure
from batchscale.workers.handle import MAX_DEATHS_AT_START
from batchscale.workers.ray import actor
from batchscale.workers.ray.handle import RayWorker, Stage, end_actors, find_version_problem, free_place
from batchscale.workers.ray.setup import RaySetup
from batchscale.workers.runner import Event, LossReason, WorkerInfo

UPDATE_EVERY_S = 1.0
"""The interval at which the nodes of the cluster are read."""

UPDATE_SOON_S = 0.1
"""The delay until they are read after a worker was lost."""

COLLECT_S = 0.5
"""How long an actor collects messages that are not urgent; as much again for each hundred workers."""

WAITING_S = 10.0
"""A notice is shown if Ray has found no node for any worker for so long."""

MAX_NEW = 100
"""The number of workers that are started at once."""

NODE_LABEL = "ray.io/node-id"


class ClusterLostError(RunError):
    """The cluster is gone."""


@dataclass(frozen=True)
class Demand:
    """The resources of a worker: cores, accelerators (fractions share one), and resources that nodes declare."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)

    def amounts(self) -> dict[str, float]:
        """Return the amounts above zero by Ray's names."""
        named = {"CPU": self.num_cpus, "GPU": self.num_gpus, **self.resources}
        return {name: amount for name, amount in named.items() if amount > 0}

    def __str__(self) -> str:
        return ", ".join(f"{amount:g} {name}" for name, amount in self.amounts().items()) or "nothing"


@dataclass(frozen=True)
class Node:
    """A node that is alive."""

    node_id: str
    host: str
    resources: Mapping[str, float]

    def capacity(self, demand: Demand) -> int:
        """Return the number of workers that it holds.

        >>> Node("a", "n1", {"CPU": 8.0, "GPU": 2.0}).capacity(Demand(num_cpus=2, num_gpus=1))
        2
        """
        amounts = demand.amounts()
        if not amounts:
            return 1  # a worker without a demand has no limit; one is intended
        return min(math.floor(self.resources.get(name, 0.0) / amount + 1e-9) for name, amount in amounts.items())

    @property
    def memory_bytes(self) -> float:
        """The memory that Ray gives its workers here."""
        return self.resources.get("memory", math.inf)


def read_nodes(descriptions: Sequence[Mapping[str, Any]]) -> dict[str, Node]:
    """Return the nodes of `ray.nodes()` that are alive, by their ids."""
    return {
        node["NodeID"]: Node(node["NodeID"], node["NodeManagerHostname"], dict(node["Resources"]))
        for node in descriptions
        if node["Alive"]
    }


def choose_demand(plan: RayPlan, num_devices: int, nodes: Mapping[str, Node]) -> Demand:
    """Return the demand of the experiment file, else accelerators if any node has some, else a core for each device."""
    any_gpus = any(node.resources.get("GPU", 0.0) > 0 for node in nodes.values())
    num_gpus = plan.num_gpus
    if num_gpus is None:
        num_gpus = float(num_devices) if any_gpus and not plan.resources else 0.0
    num_cpus = plan.num_cpus
    if num_cpus is None:
        num_cpus = 1.0 if num_gpus or plan.resources else float(num_devices)
    return Demand(num_cpus, num_gpus, dict(plan.resources))


class RayWorkerPool:
    """The workers on a connected cluster. ``calls`` are the unanswered calls of actors, each with its worker.

    ``workers`` and ``notices`` belong to the runner, which submits jobs to the ones and shows the others.
    """

    def __init__(
        self, ray: Any, setup: RaySetup, max_workers: int | None, workers: dict[str, RayWorker], notices: list[str]
    ) -> None:
        self._ray = ray
        self._setup = setup
        self._max_workers = max_workers
        self.workers = workers
        self._notices = notices
        self._nodes = read_nodes(ray.nodes())
        self.demand: Demand = choose_demand(setup.setup.experiment.run.ray, setup.setup.num_devices, self._nodes)
        ray.cloudpickle.register_pickle_by_value(actor)  # so that a node without batchscale can report it
        self._actor_class = ray.remote(actor.WorkerActor)
        self.calls: dict[Any, RayWorker] = {}
        self._next_number = 0
        self._refused: dict[str, str] = {}
        self._without_states: set[str] = set()
        self._reduction = 0
        self._deaths_at_start = 0
        self._update_at = 0.0
        self._idle_since: float | None = None

    def update(self) -> None:
        """Start as many workers as fit on the nodes; at least one waits for a node.

        Raises:
            RunError: no node can train the experiment, with the reason of each; or no node is alive.
        """
        now = time.monotonic()
        if now < self._update_at:
            return
        self._update_at = now + UPDATE_EVERY_S
        self._nodes = read_nodes(self._ray.nodes())
        if not self._nodes:
            raise ClusterLostError("none of its nodes is alive")
        capacity = sum(
            0 if node.node_id in self._refused else node.capacity(self.demand) for node in self._nodes.values()
        )
        any_placed = any(worker.stage is not Stage.PLACING for worker in self.workers.values())
        if self._refused and not capacity and not any_placed:
            raise RunError("\n".join(self._refused.values()))
        target = max(1, (self._max_workers or capacity) - self._reduction)
        active = [worker for worker in self.workers.values() if not worker.draining]
        for _ in range(min(MAX_NEW, target - len(active))):
            self._add()
        placing = [worker for worker in active if worker.stage is Stage.PLACING]
        for worker in placing[: max(0, len(active) - target)]:
            self.remove(worker)
        self._report_waiting(now, capacity, any_placed)

    def start(self, worker: RayWorker, node: dict[str, Any]) -> None:
        """Start the process of a worker whose actor has a node; exclude a node with another version."""
        worker.node, worker.place = node["node"], free_place(self.workers.values(), node["node"])
        worker.info = WorkerInfo(worker.info.worker_id, node["host"], worker.info.num_devices)
        worker.pid = node["pid"]
        problem = find_version_problem(node)
        if problem is not None:
            self.refuse(worker, problem)
            return
        worker.stage = Stage.STARTING
        sees_marker = node["sees_marker"]
        if self._setup.marker is not None and not sees_marker:
            self._report_without_states(worker, f"does not see {self._setup.marker.parent}")
        num_devices = self._setup.setup.num_devices
        self.calls[worker.actor.start_worker.remote(worker.place, num_devices, self.demand.num_gpus == 0)] = worker
        known_node = self._nodes.get(worker.node)
        node_workers = 1 if known_node is None else max(1, known_node.capacity(self.demand))
        worker.send(self._setup.begin(worker.info.worker_id, sees_marker=sees_marker, node_workers=node_workers))

    def receive(self, worker: RayWorker) -> None:
        """Call the actor for the worker's next messages."""
        self.calls[worker.actor.receive.remote(COLLECT_S * (1 + len(self.workers) // 100))] = worker

    def remove_unplaced(self) -> None:
        """End the workers without a node: one that starts after all others were stopped would not stop."""
        for worker in list(self.workers.values()):
            if worker.stage is Stage.PLACING:
                self.remove(worker)

    def handle_ready(self, worker: RayWorker, states_problem: str = "") -> None:
        """Update the pool for a worker that is ready; report it if it cannot store states at the remote path."""
        self._deaths_at_start = 0
        if states_problem:
            self._report_without_states(worker, f"cannot store states at the remote path ({states_problem})")

    def memory_share(self, worker: RayWorker) -> float | None:
        """Return a worker's share of its node's memory; None if the node is gone."""
        node = self._nodes.get(worker.node)
        return None if node is None else node.memory_bytes / max(1, node.capacity(self.demand))

    def lower_limit(self) -> bool:
        """Have one worker fewer from now on; False if it is the last one."""
        num_active = sum(not worker.draining for worker in self.workers.values())
        if num_active <= 1:
            return False
        self._reduction += 1
        self._notices.append(f"Out of memory: from now on {num_active - 1} worker(s) train at once.")
        return True

    def refuse(self, worker: RayWorker, reason: str) -> None:
        """Exclude the node of a worker: it cannot train this experiment."""
        self.remove(worker)
        if worker.node not in self._refused:
            self._refused[worker.node] = reason
            self._notices.append(f"{reason} The node is not used.")
        self._update_at = 0.0

    def lose(self, worker: RayWorker, loss: LossReason, reason: Failure, *, stopping: bool) -> list[Event]:
        """Remove a worker that has ended; the next update starts another.

        Raises:
            RunError: workers end again and again before they are ready.
        """
        self.remove(worker)
        name = f"Worker {worker.info.worker_id} on {worker.info.host or 'no node yet'}"
        if not stopping and not worker.draining:
            self._notices.append(f"{name} is replaced. {str(reason).splitlines()[0]}")
            if loss is LossReason.OUT_OF_MEMORY:
                self.lower_limit()
            if not worker.ready and loss is not LossReason.PREEMPTED:
                self._count_death_at_start(f"{name}: {reason}")
        self._update_at = min(self._update_at, time.monotonic() + UPDATE_SOON_S)
        return worker.fail_jobs(loss, reason.preceded_by(f"{name}: "))

    def remove(self, worker: RayWorker) -> None:
        """End a worker, or stop waiting for a node for it."""
        self.workers.pop(worker.info.worker_id, None)
        self.calls = {reference: other for reference, other in self.calls.items() if other is not worker}
        end_actors(self._ray, [worker])

    def _add(self) -> None:
        options: dict[str, Any] = {
            "num_cpus": self.demand.num_cpus,
            "num_gpus": self.demand.num_gpus,
            "resources": dict(self.demand.resources),
            "scheduling_strategy": "SPREAD",
            "max_restarts": 0,  # a restarted actor has lost its states: it is another worker
        }
        if self._refused:
            options["label_selector"] = {NODE_LABEL: f"!in({','.join(self._refused)})"}
        info = WorkerInfo(f"ray-{self._next_number}", "", self._setup.setup.num_devices)
        self._next_number += 1
        worker = RayWorker(info, self._actor_class.options(**options).remote())
        self.workers[info.worker_id] = worker
        marker = None if self._setup.marker is None else str(self._setup.marker)
        self.calls[worker.actor.describe_node.remote(marker, self._setup.secret)] = worker

    def _count_death_at_start(self, reason: str) -> None:
        self._deaths_at_start += 1
        if self._deaths_at_start >= MAX_DEATHS_AT_START * max(1, len(self.workers)):
            raise RunError(f"Workers must start, but {self._deaths_at_start} in a row died at once. {reason}")

    def _report_without_states(self, worker: RayWorker, problem: str) -> None:
        if worker.node not in self._without_states:
            self._without_states.add(worker.node)
            self._notices.append(
                f"Node {one_line(worker.info.host)} {problem}: trials that are lost there are trained again from their "
                "seed."
            )

    def _report_waiting(self, now: float, capacity: int, any_placed: bool) -> None:
        if any_placed:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since > WAITING_S:
            self._idle_since = float("inf")  # reported once, until there was a worker again
            problem = "all of that is in use" if capacity else "no node has that much"
            self._notices.append(f"Waiting for a place on the Ray cluster: a worker takes {self.demand}; {problem}.")
