"""The runner of a cluster in groups: each group of hosts is a worker, which trains other trials than the others.

It lives in the chief, whose own group trains in a thread beside the driver. A group that has lost a host is gone until
the next start: what it was given is lost, and trained by the others.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any, final

from batchscale.cluster import Group, Peers
from batchscale.errors import RunError
from batchscale.protocol import Failure
from batchscale.runners.environment import computing_like_a_worker
from batchscale.runners.group_lead import GroupLead
from batchscale.runners.group_messages import FoundState, GroupGone, KeepState, WantState, WishToStop, decode, encode
from batchscale.runners.messages import Answered, Forget, Kept, Raised, Retire, Shelve, Stop
from batchscale.runners.runner import Doing, Event, Job, LossReason, Lost, Runner, Setup, WorkerInfo
from batchscale.runners.state_files import StateFiles

CLOSE_S = 60.0


@dataclass
class _Place:
    """A group as its runner sees it."""

    info: WorkerInfo
    lead: int
    jobs: deque[int] = field(default_factory=deque)
    kept: bool = False
    gone: bool = False

    @property
    def at_rest(self) -> bool:
        """Whether it will say nothing more."""
        return self.gone or (self.kept and not self.jobs)


@final
class GroupRunner(Runner):
    """Groups of hosts as workers. A host of the chief's group that is lost ends all; started again, the run goes on."""

    def __init__(
        self, whole: Peers, group: Group, setup: Setup, is_stopped: Callable[[], bool], on_stop: Callable[[], None]
    ) -> None:
        self._whole = whole
        self._on_stop = on_stop
        self._states = StateFiles(setup.checkpoint_dir, setup.shelf_bytes)
        self._places = {f"group-{i}": self._describe(group, setup, i) for i in range(group.count)}
        self._by_lead = {place.lead: place for place in self._places.values()}
        self._stopping = self._closed = False
        self._events: list[Event] = []
        self._notices: list[str] = []
        self._group = group
        whole.go_on_without(group.companions, self._note_loss)
        self._environment = computing_like_a_worker(setup.num_devices)
        self._environment.__enter__()  # before the engine is loaded
        lead = GroupLead(whole, group, changed(setup, checkpoint_dir=None), is_stopped)
        self._own = threading.Thread(target=lead.serve, daemon=True, name="own group")
        self._own.start()

    def _describe(self, group: Group, setup: Setup, number: int) -> _Place:
        lead = group.lead_of(number)
        names = [self._whole.cluster.name(lead + i) for i in range(group.size)]
        return _Place(WorkerInfo(f"group-{number}", ", ".join(names), setup.num_devices * group.size), lead)

    @property
    def workers(self) -> tuple[WorkerInfo, ...]:
        """The groups that are there."""
        if self._stopping or self._closed:
            return ()
        return tuple(place.info for place in self._places.values() if not place.gone)

    @property
    def notices(self) -> tuple[str, ...]:
        """Which groups were lost."""
        return tuple(self._notices)

    def waiting(self, worker_id: str) -> int:
        """How many jobs a group has."""
        place = self._places.get(worker_id)
        return 0 if place is None else len(place.jobs)

    def submit(self, worker_id: str, job: Job) -> None:
        """Send a group a job."""
        if self._closed:
            raise RunError("A closed runner takes no jobs.")
        place = self._places.get(worker_id)
        if place is None or place.gone:
            self._events.append(Lost(job.job_id, worker_id, LossReason.NOT_STARTED, Failure("There is no such group.")))
            return
        place.jobs.append(job.job_id)
        self._whole.ask(place.lead, encode(job))

    def wait(self, timeout_s: float) -> list[Event]:
        """What the groups have said."""
        if self._closed:
            return []
        events, self._events = self._events, []
        wait_s = 0.0 if events else timeout_s
        while True:
            try:
                lead, message = self._whole.told.get(timeout=wait_s) if wait_s else self._whole.told.get_nowait()
            except queue.Empty:
                return events
            events += self._hear(self._by_lead[lead], decode(message))
            wait_s = 0.0

    def _note_loss(self, process: int, text: str) -> None:
        lead = self._group.lead_of(process // self._group.size)
        self._whole.told.put((lead, encode(GroupGone(text))))

    def _hear(self, place: _Place, message: Any) -> list[Event]:
        if place.gone:  # what came late is answered already
            return []
        if isinstance(message, GroupGone):
            return self._lose(place, message.reason)
        if isinstance(message, Doing):
            return [message]
        if isinstance(message, Answered):
            place.jobs.remove(message.done.job_id)
            return [message.done]
        if isinstance(message, Raised):
            place.jobs.remove(message.job_id)
            return [Lost(message.job_id, place.info.worker_id, message.loss, message.reason)]
        if isinstance(message, KeepState):
            self._states.put(message.batch_size, message.trial_id, message.data, message.ended)
        elif isinstance(message, WantState):
            get = self._states.get_checkpoints if message.checkpoints else self._states.get
            data = get(message.batch_size, message.trial_id)
            self._whole.ask(place.lead, encode(FoundState(data)))
        elif isinstance(message, Kept):
            place.kept = True
        elif isinstance(message, WishToStop):
            self._on_stop()
        return []

    def _lose(self, place: _Place, reason: str) -> list[Event]:
        place.gone = True
        self._notices.append(f"{reason} The run goes on without {place.info.worker_id}.")
        jobs, worker_id = list(place.jobs), place.info.worker_id
        place.jobs.clear()
        began = [Lost(job_id, worker_id, LossReason.DIED, Failure(reason)) for job_id in jobs[:1]]
        return [*began, *(Lost(job_id, worker_id, LossReason.NOT_STARTED, Failure(reason)) for job_id in jobs[1:])]

    def forget(self, batch_size: int, trial_ids: Sequence[int] = ()) -> None:
        """Pass it on to every group."""
        self._ask_all(Forget(batch_size, tuple(trial_ids)))

    def shelve(self, batch_size: int, steps: Mapping[int, int]) -> None:
        """Pass it on to every group: the one that holds a trial sends its state."""
        self._ask_all(Shelve(batch_size, dict(steps)))

    def stop(self) -> None:
        """Pass it on to every group, once."""
        if not self._stopping and not self._closed:
            self._stopping = True
            self._ask_all(Stop())

    @property
    def at_rest(self) -> bool:
        """Whether every group has answered its jobs and sent its states."""
        return all(place.at_rest for place in self._places.values())

    def kill(self) -> None:
        """End the hosts of the other groups that are not at rest; the chief's own cannot end before its chunk does."""
        self._end([place for place in self._places.values() if not place.at_rest])

    def close(self) -> None:
        """End all groups and wait for none that trains: it had its time to stop, or the chief ends for an error.

        An error is told to all hosts by whoever ends the command, and ends them at once.
        """
        if self._closed:
            return
        if self._stopping:
            self._end([place for place in self._places.values() if place.jobs])
        self.stop()
        self._closed = True
        self._ask_all(Retire())
        if not self._places["group-0"].jobs:
            self._own.join(CLOSE_S)
        self._environment.__exit__(None, None, None)

    def _end(self, places: Sequence[_Place]) -> None:
        for place in places:
            self._whole.let_go(place.lead, "The run was stopped before this group had ended its chunk.")

    def _ask_all(self, message: object) -> None:
        if not self._whole.ended:
            payload = encode(message)
            for place in self._places.values():
                if not place.gone:
                    self._whole.ask(place.lead, payload)
