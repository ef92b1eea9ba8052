"""The Ray runner: a worker on every place of a cluster that has room for one, for as long as it is there.

Owns the link to the cluster and the actors. Nodes may come and go at any time: new ones get workers, the jobs of lost
ones come back as lost through no fault of their trials. Nothing on a node is ever needed to resume.
"""

import contextlib
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from batchscale import __version__
from batchscale.errors import RunError, one_line
from batchscale.machine import count_accelerators, count_cores
from batchscale.runners.arrival import make_absolute, pack_luggage
from batchscale.runners.codec import decode_reply
from batchscale.runners.messages import (
    Answered,
    Begin,
    Forget,
    Instruction,
    Kept,
    Raised,
    Ready,
    Refused,
    Retire,
    Shelve,
    Started,
    Stop,
)
from batchscale.runners.ray.gate import Gate, is_look
from batchscale.runners.ray.link import ClusterLink
from batchscale.runners.ray.nodes import Demand, NodeFacts, choose_demand, read_nodes
from batchscale.runners.ray.seats import Seat, Stage, end_actors, free_place
from batchscale.runners.runner import Doing, Event, Job, LossReason, Lost, Runner, Setup, WorkerInfo

FOLLOW_EVERY_S = 1.0
"""How often the nodes of the cluster are looked at."""

PATIENCE_S = 0.5
"""How long news that nobody waits for are gathered, for each hundred workers."""

WAITING_S = 10.0
"""People are told when Ray has found no room for any worker for so long."""

MAX_DEATHS_AT_START = 3
MAX_NEW = 100
"""How many workers are asked for at once."""

END_S = 5.0


@dataclass(frozen=True)
class RaySettings:
    """Which cluster (None: a local one), how many workers at most, and when one is replaced by a fresh process."""

    address: str | None = None
    workers: int | None = None
    recycle_after_trials: int = 2000


@final
class RayRunner(Runner):
    """Workers on a Ray cluster."""

    def __init__(self, setup: Setup, settings: RaySettings) -> None:
        options = {name: value for name, value in setup.options.items() if name != "environment"}
        self._setup = make_absolute(replace(setup, options=options))
        self._luggage = pack_luggage(setup.experiment)
        self._settings = settings
        self._ray: Any = None
        self._remote: Any = None
        self._demand = Demand()
        self._nodes: dict[str, NodeFacts] = {}
        self._refused: dict[str, str] = {}
        self._blind: set[str] = set()
        self._fewer = 0
        self._deaths_at_start = 0
        self._seats: dict[str, Seat] = {}
        self._asked: dict[Any, Seat] = {}
        self._not_started: list[Event] = []
        self._notices: list[str] = []
        self._number = 0
        self._looked_at = -FOLLOW_EVERY_S
        self._alone_since: float | None = None
        self._stopping = False
        self._closed = False
        self._mark, self._mark_text = self._make_mark(), secrets.token_hex(16)
        cores = (settings.workers or 0) * setup.num_devices
        self._link = ClusterLink(settings.address, max(cores, count_cores()), count_accelerators())
        if settings.address is None:
            self._notices.append("A local Ray cluster is starting.")
        else:
            try:
                self._connect()
            except BaseException:
                self.close()
                raise

    # --- the interface ---------------------------------------------------------------------------------------

    @property
    def workers(self) -> tuple[WorkerInfo, ...]:
        """The workers that have begun and are not retiring."""
        if self._stopping or self._closed:
            return ()
        return tuple(s.info for s in self._seats.values() if s.stage is Stage.READY and not s.retiring)

    @property
    def notices(self) -> tuple[str, ...]:
        """What happened to nodes and workers."""
        return tuple(self._notices)

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The ids of the worker processes, each on its own node."""
        return tuple(seat.process for seat in self._seats.values() if seat.process)

    def waiting(self, worker_id: str) -> int:
        """How many jobs a worker has."""
        seat = self._seats.get(worker_id)
        return 0 if seat is None else len(seat.jobs)

    def submit(self, worker_id: str, job: Job) -> None:
        """Send a worker a job; if it is gone, the next `wait` says that the job was not started."""
        if self._closed:
            raise RunError("A closed runner takes no jobs.")
        seat = self._seats.get(worker_id)
        if seat is None:
            self._not_started.append(Lost(job.job_id, worker_id, LossReason.NOT_STARTED, "The worker is gone."))
            return
        seat.jobs.append(job)
        seat.tell(job)

    def wait(self, timeout_s: float) -> list[Event]:
        """What the workers have said; the cluster is followed on the way."""
        if self._closed:
            return []
        if self._ray is None:
            self._connect()
            return []
        events, self._not_started = self._not_started, []
        try:
            self._follow()
            for reference in self._answered(0.0 if events else timeout_s):
                events += self._hear(self._asked.pop(reference), reference)
        except (self._ray.exceptions.RaySystemError, self._ray.exceptions.RpcError, ConnectionError) as error:
            raise RunError(
                f"The Ray cluster must be there as long as the run. It was lost: {one_line(error, 300)}. Nothing that "
                "was recorded is; run the same command again."
            ) from None
        return events

    def forget(self, batch_size: int, trial_ids: Sequence[int] = ()) -> None:
        """Pass it on to every worker."""
        self._tell_all(Forget(batch_size, tuple(trial_ids)))

    def shelve(self, batch_size: int, steps: Mapping[int, int]) -> None:
        """Pass it on to every worker: the one that holds a trial keeps its state."""
        self._tell_all(Shelve(batch_size, steps))

    def stop(self) -> None:
        """Pass it on to every worker, once."""
        if not self._stopping:
            self._stopping = True
            self._tell_all(Stop())

    @property
    def at_rest(self) -> bool:
        """Whether every worker that has begun has said so."""
        return all(s.kept and not s.jobs for s in self._seats.values() if s.stage is Stage.READY)

    def kill(self) -> None:
        """Kill all workers, from any thread; none is replaced from now on."""
        self._stopping = True
        if self._link.local is not None:
            self._link.kill()
        elif self._ray is not None:
            end_actors(self._ray, list(self._seats.values()))

    def close(self) -> None:
        """Kill all workers, wait for their end, and hang up."""
        if self._closed:
            return
        self._closed = True
        self.kill()
        if self._ray is not None and self._link.local is None and self._asked:
            with contextlib.suppress(self._ray.exceptions.RayError, ConnectionError):
                self._ray.wait(list(self._asked), num_returns=len(self._asked), timeout=END_S)
        self._seats.clear()
        self._asked.clear()
        self._link.close()
        self._ray = None
        if self._mark is not None:
            self._mark.unlink(missing_ok=True)

    # --- the cluster -----------------------------------------------------------------------------------------

    def _connect(self) -> None:
        ray = self._link.connect()
        if ray is None:
            return
        ray.cloudpickle.register_pickle_by_value(_module_of(Gate))
        self._nodes = read_nodes(ray.nodes())
        self._demand = choose_demand(self._setup.experiment.run.ray, self._setup.num_devices, self._nodes)
        self._remote = ray.remote(Gate)
        if self._mark is not None:
            self._mark.write_text(self._mark_text)
        self._ray = ray

    def _make_mark(self) -> Path | None:
        """A file in the folder of checkpoints, by which a node shows that it sees that folder."""
        folder = self._setup.checkpoint_dir
        if folder is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        return folder / ".seen-by-nodes"

    def _follow(self) -> None:
        """Have as many workers as fit on the nodes that there are; at least one waits for a place."""
        now = time.monotonic()
        if self._stopping or now - self._looked_at < FOLLOW_EVERY_S:
            return
        self._looked_at = now
        self._nodes = read_nodes(self._ray.nodes())
        fitting = sum(node.seats(self._demand) for node in self._nodes.values() if node.node_id not in self._refused)
        if self._refused and not fitting and not self.workers:
            raise RunError("\n".join(self._refused.values()))
        wanted = max(1, (self._settings.workers or fitting) - self._fewer)
        seats = [seat for seat in self._seats.values() if not seat.retiring]
        for _ in range(min(MAX_NEW, wanted - len(seats))):
            self._add()
        surplus = [seat for seat in seats if seat.stage is Stage.PLACING][: max(0, len(seats) - wanted)]
        for seat in surplus:
            self._remove(seat)
        self._note_waiting(now, fitting)

    def _note_waiting(self, now: float, fitting: int) -> None:
        if any(seat.stage is not Stage.PLACING for seat in self._seats.values()):
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
        elif now - self._alone_since > WAITING_S:
            self._alone_since = float("inf")  # said once, until there was a worker again
            room = "all of it is taken" if fitting else "no node has that much"
            self._notices.append(f"Waiting for a place on the Ray cluster: a worker takes {self._demand}; {room}.")

    def _add(self) -> None:
        amounts = self._demand
        options: dict[str, Any] = {"num_cpus": amounts.num_cpus, "num_gpus": amounts.num_gpus, "max_restarts": 0}
        options |= {"resources": dict(amounts.resources), "scheduling_strategy": "SPREAD"}
        if self._refused:
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(self._refused)})"}
        info = WorkerInfo(f"ray-{self._number}", "", self._setup.num_devices)
        self._number += 1
        seat = Seat(info, self._remote.options(**options).remote())
        self._seats[info.worker_id] = seat
        mark = None if self._mark is None else str(self._mark)
        self._asked[seat.actor.look.remote(mark, self._mark_text)] = seat

    def _remove(self, seat: Seat) -> None:
        self._seats.pop(seat.info.worker_id, None)
        self._asked = {reference: other for reference, other in self._asked.items() if other is not seat}
        end_actors(self._ray, [seat])

    # --- single workers --------------------------------------------------------------------------------------

    def _answered(self, timeout_s: float) -> list[Any]:
        """The calls that were answered, all of them, after waiting for the first."""
        if not self._asked:
            time.sleep(timeout_s)
            return []
        first, rest = self._ray.wait(list(self._asked), num_returns=1, timeout=timeout_s)
        if first and rest:
            return list(first) + list(self._ray.wait(rest, num_returns=len(rest), timeout=0)[0])
        return list(first)

    def _hear(self, seat: Seat, reference: Any) -> list[Event]:
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayActorError as error:
            return self._lose(seat, *_explain_loss(error))
        except self._ray.exceptions.RayError as error:
            return self._lose(seat, LossReason.DIED, one_line(error, 600))
        if seat.stage is Stage.PLACING:
            self._begin(seat, answer)
            return []
        messages, ended = _check_news(answer)
        events: list[Event] = []
        for data in messages:
            events += self._take_in(seat, data)
        if seat.info.worker_id not in self._seats:
            return events
        if ended is not None:
            return events + self._lose(seat, LossReason.DIED, ended)
        self._ask_news(seat)
        return events

    def _begin(self, seat: Seat, look: Any) -> None:
        """Start the worker of an actor that has found its place."""
        if not is_look(look):
            raise RunError("A worker on another machine answers in words of the same version. It did not.")
        if look["version"] != __version__:
            found = f"version {one_line(look['version'])}" if look["version"] else "none"
            self._refuse(seat, look["node"], look["host"], (
                f"Node {one_line(look['host'])} cannot train this experiment. It must have batchscale {__version__}. "
                f"Found {found}: install the same environment there."))  # fmt: skip
            return
        seat.node, seat.place = look["node"], free_place(self._seats.values(), look["node"])
        seat.info = replace(seat.info, host=look["host"])
        seat.stage = Stage.BEGINNING
        setup = self._setup
        if self._mark is not None and not look["sees"]:
            setup = replace(setup, checkpoint_dir=None)
            if seat.node not in self._blind:
                self._blind.add(seat.node)
                self._notices.append(
                    f"Node {one_line(look['host'])} does not see {self._mark.parent}: trials that are lost there are "
                    "trained again from their seed."
                )
        seat.actor.begin.remote(seat.place, setup.num_devices, hidden=self._demand.num_gpus == 0)
        seat.tell(Begin(setup, seat.info.worker_id, self._luggage))
        self._ask_news(seat)

    def _ask_news(self, seat: Seat) -> None:
        patience_s = PATIENCE_S * (1 + len(self._seats) // 100)
        self._asked[seat.actor.news.remote(patience_s)] = seat

    def _take_in(self, seat: Seat, data: bytes) -> list[Event]:
        message = decode_reply(data)
        if isinstance(message, Doing):
            return [message]
        if isinstance(message, Answered):
            seat.answer(message.done.job_id)
            seat.trials += len(message.done.progress)
            if seat.trials >= self._settings.recycle_after_trials or message.memory_bytes > self._memory_limit(seat):
                self._retire(seat)
            return [message.done]
        if isinstance(message, Raised):
            seat.answer(message.job_id)
            if message.loss is LossReason.OUT_OF_MEMORY and self._lower_limit():
                self._retire(seat)
            return [Lost(message.job_id, seat.info.worker_id, message.loss, message.reason)]
        if isinstance(message, Ready):
            seat.stage, self._deaths_at_start = Stage.READY, 0
            if self._stopping:
                seat.tell(Stop())
        elif isinstance(message, Started):
            seat.started = message.job_id
        elif isinstance(message, Kept):
            seat.kept = True
        elif isinstance(message, Refused):
            self._refuse(seat, seat.node, message.host, message.reason)
        return []

    def _refuse(self, seat: Seat, node: str, host: str, reason: str) -> None:
        """Leave out a node that cannot train this experiment."""
        self._remove(seat)
        if node not in self._refused:
            self._refused[node] = reason
            self._notices.append(f"{reason} {one_line(host)} is left out.")
            self._looked_at = -FOLLOW_EVERY_S

    def _lose(self, seat: Seat, loss: LossReason, reason: str) -> list[Event]:
        """Clear away a worker that has ended; another takes its place when the cluster is looked at next."""
        self._remove(seat)
        where = f"Worker {seat.info.worker_id} on {seat.info.host or 'a node'}"
        if loss is LossReason.OUT_OF_MEMORY:
            self._lower_limit()
        if not seat.retiring and not self._stopping:
            self._notices.append(f"{where} is replaced. {reason.splitlines()[0]}")
        if seat.stage is not Stage.READY and not self._stopping:
            self._count_start(f"{where}: {reason}")
        self._looked_at = min(self._looked_at, time.monotonic() - FOLLOW_EVERY_S + 0.1)
        return seat.lose(loss, f"{where}: {reason}")

    def _count_start(self, reason: str) -> None:
        self._deaths_at_start += 1
        if self._deaths_at_start >= MAX_DEATHS_AT_START * max(1, len(self._seats)):
            raise RunError(f"Workers must start, but {self._deaths_at_start} in a row died at once. {reason}")

    def _retire(self, seat: Seat) -> None:
        if not seat.retiring:
            seat.retiring = True
            seat.tell(Retire())

    def _memory_limit(self, seat: Seat) -> float:
        node = self._nodes.get(seat.node)
        return float("inf") if node is None else node.memory_bytes / max(1, node.seats(self._demand))

    def _lower_limit(self) -> bool:
        working = sum(not seat.retiring for seat in self._seats.values())
        if working <= 1:
            return False
        self._fewer += 1
        self._notices.append(f"Out of memory: from now on {working - 1} worker(s) train at once.")
        return True

    def _tell_all(self, message: Instruction) -> None:
        for seat in self._seats.values():
            if seat.stage is not Stage.PLACING:
                seat.tell(message)


def _check_news(answer: Any) -> tuple[list[bytes], str | None]:
    messages, ended = answer
    if not all(isinstance(data, bytes) for data in messages) or not isinstance(ended, str | None):
        raise RunError("A worker on another machine answers in words of the same version. It did not.")
    return list(messages), ended


def _explain_loss(error: Exception) -> tuple[LossReason, str]:
    """Why an actor is gone. Trials are trained in another process than the actor's: its end is not their doing."""
    text = one_line(" ".join(str(error).split()), 400)
    return (LossReason.OUT_OF_MEMORY if "low on memory" in text else LossReason.TAKEN), text


def _module_of(kind: type) -> Any:
    import sys

    return sys.modules[kind.__module__]
