"""The workers of a Ray cluster: as many as its nodes hold, in whatever number those are there.

Owns the actors and decides when one is asked for, given up or left out. What workers say is the runner's business.
"""

import time
from typing import Any

from batchscale.errors import RunError, one_line
from batchscale.study.failure import Failure
from batchscale.workers.handle import MAX_DEATHS_AT_START
from batchscale.workers.ray import node_actor
from batchscale.workers.ray.nodes import Demand, NodeFacts, choose_demand, read_nodes
from batchscale.workers.ray.papers import Papers, find_version_problem
from batchscale.workers.ray.seats import Seat, Stage, end_actors, free_place
from batchscale.workers.runner import Event, LossReason, WorkerInfo

FOLLOW_EVERY_S = 1.0
"""How often the nodes of the cluster are looked at."""

SOON_S = 0.1
"""When they are looked at after a worker was lost."""

PATIENCE_S = 0.5
"""How long news that nobody waits for are gathered; as much again for each hundred workers."""

WAITING_S = 10.0
"""People are told when Ray has found no place for any worker for so long."""

MAX_NEW = 100
"""How many workers are asked for at once."""

NODE_LABEL = "ray.io/node-id"


class ClusterLostError(RunError):
    """The cluster is gone; says how."""


class Crew:
    """Seats on a cluster that is there. ``asked`` are the calls that are not answered yet, each with its seat.

    ``seats`` and ``notices`` are the runner's: it gives jobs to the ones and shows the others.
    """

    def __init__(
        self, ray: Any, papers: Papers, workers: int | None, seats: dict[str, Seat], notices: list[str]
    ) -> None:
        self._ray = ray
        self._papers = papers
        self._workers = workers
        self.seats = seats
        self._notices = notices
        self._nodes = read_nodes(ray.nodes())
        self.demand: Demand = choose_demand(papers.setup.experiment.run.ray, papers.setup.num_devices, self._nodes)
        ray.cloudpickle.register_pickle_by_value(node_actor)  # so that a node without batchscale can say so
        self._actor = ray.remote(node_actor.NodeActor)
        self.asked: dict[Any, Seat] = {}
        self._number = 0
        self._refused: dict[str, str] = {}
        self._blind: set[str] = set()
        self._fewer = 0
        self._deaths_at_start = 0
        self._next_look = 0.0
        self._alone_since: float | None = None

    def follow(self) -> None:
        """Have as many workers as fit on the nodes that there are; at least one waits for a place.

        Raises:
            RunError: no node that is there can train the experiment, with the reason of each; or no node is left.
        """
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + FOLLOW_EVERY_S
        self._nodes = read_nodes(self._ray.nodes())
        if not self._nodes:
            raise ClusterLostError("no node of it is left")
        fitting = sum(self._seats_of(node) for node in self._nodes.values())
        at_work = any(seat.stage is not Stage.PLACING for seat in self.seats.values())
        if self._refused and not fitting and not at_work:
            raise RunError("\n".join(self._refused.values()))
        wanted = max(1, (self._workers or fitting) - self._fewer)
        there = [seat for seat in self.seats.values() if not seat.draining]
        for _ in range(min(MAX_NEW, wanted - len(there))):
            self._add()
        waiting = [seat for seat in there if seat.stage is Stage.PLACING]
        for seat in waiting[: max(0, len(there) - wanted)]:
            self.remove(seat)
        self._note_waiting(now, fitting, at_work)

    def start(self, seat: Seat, look: dict[str, Any]) -> None:
        """Start the worker of an actor that has found its place; leave out a node with another version."""
        seat.node, seat.place = look["node"], free_place(self.seats.values(), look["node"])
        seat.info = WorkerInfo(seat.info.worker_id, look["host"], seat.info.num_devices)
        seat.pid = look["pid"]
        problem = find_version_problem(look)
        if problem is not None:
            self.refuse(seat, problem)
            return
        seat.stage = Stage.STARTING
        if self._papers.mark is not None and not look["sees"]:
            self._note_blind(seat, f"does not see {self._papers.mark.parent}")
        num_devices = self._papers.setup.num_devices
        self.asked[seat.actor.begin.remote(seat.place, num_devices, self.demand.num_gpus == 0)] = seat
        node = self._nodes.get(seat.node)
        neighbours = 1 if node is None else max(1, node.seats(self.demand))
        seat.tell(self._papers.begin(seat.info.worker_id, sees_mark=look["sees"], neighbours=neighbours))

    def ask_news(self, seat: Seat) -> None:
        """Wait for what the worker says next."""
        self.asked[seat.actor.news.remote(PATIENCE_S * (1 + len(self.seats) // 100))] = seat

    def give_up_waiting(self) -> None:
        """End the workers that have no place yet: one that came after all others were told to stop would not know."""
        for seat in list(self.seats.values()):
            if seat.stage is Stage.PLACING:
                self.remove(seat)

    def note_ready(self, seat: Seat, blind: str = "") -> None:
        """A worker has begun; ``blind`` says why it cannot keep states at the remote path."""
        self._deaths_at_start = 0
        if blind:
            self._note_blind(seat, f"cannot keep states at the remote path ({blind})")

    def memory_share(self, seat: Seat) -> float | None:
        """What a worker may hold of its node's memory; None if the node is not known."""
        node = self._nodes.get(seat.node)
        return None if node is None else node.memory_bytes / max(1, node.seats(self.demand))

    def lower_limit(self) -> bool:
        """Have one worker fewer from now on; False if it is the last one."""
        working = sum(not seat.draining for seat in self.seats.values())
        if working <= 1:
            return False
        self._fewer += 1
        self._notices.append(f"Out of memory: from now on {working - 1} worker(s) train at once.")
        return True

    def refuse(self, seat: Seat, reason: str) -> None:
        """Leave out a node that cannot train this experiment."""
        self.remove(seat)
        if seat.node not in self._refused:
            self._refused[seat.node] = reason
            self._notices.append(f"{reason} It is left out.")
        self._next_look = 0.0

    def lose(self, seat: Seat, loss: LossReason, reason: Failure, *, stopping: bool) -> list[Event]:
        """Clear away a worker that has ended; another takes its place when the nodes are looked at next.

        Raises:
            RunError: workers end again and again before they have begun.
        """
        self.remove(seat)
        where = f"Worker {seat.info.worker_id} on {seat.info.host or 'no node yet'}"
        if not stopping and not seat.draining:
            self._notices.append(f"{where} is replaced. {str(reason).splitlines()[0]}")
            if loss is LossReason.OUT_OF_MEMORY:
                self.lower_limit()
            if not seat.ready and loss is not LossReason.PREEMPTED:
                self._count_start(f"{where}: {reason}")
        self._next_look = min(self._next_look, time.monotonic() + SOON_S)
        return seat.lose(loss, reason.preceded_by(f"{where}: "))

    def remove(self, seat: Seat) -> None:
        """End a worker, or stop waiting for a place for it."""
        self.seats.pop(seat.info.worker_id, None)
        self.asked = {reference: other for reference, other in self.asked.items() if other is not seat}
        end_actors(self._ray, [seat])

    def _seats_of(self, node: NodeFacts) -> int:
        return 0 if node.node_id in self._refused else node.seats(self.demand)

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
        info = WorkerInfo(f"ray-{self._number}", "", self._papers.setup.num_devices)
        self._number += 1
        seat = Seat(info, self._actor.options(**options).remote())
        self.seats[info.worker_id] = seat
        mark = None if self._papers.mark is None else str(self._papers.mark)
        self.asked[seat.actor.look.remote(mark, self._papers.secret)] = seat

    def _count_start(self, reason: str) -> None:
        self._deaths_at_start += 1
        if self._deaths_at_start >= MAX_DEATHS_AT_START * max(1, len(self.seats)):
            raise RunError(f"Workers must start, but {self._deaths_at_start} in a row died at once. {reason}")

    def _note_blind(self, seat: Seat, what: str) -> None:
        if seat.node not in self._blind:
            self._blind.add(seat.node)
            self._notices.append(
                f"Node {one_line(seat.info.host)} {what}: trials that are lost there are trained again from their seed."
            )

    def _note_waiting(self, now: float, fitting: int, at_work: bool) -> None:
        if at_work:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
        elif now - self._alone_since > WAITING_S:
            self._alone_since = float("inf")  # said once, until there was a worker again
            room = "all of that is taken" if fitting else "no node has that much"
            self._notices.append(f"Waiting for a place on the Ray cluster: a worker takes {self.demand}; {room}.")
