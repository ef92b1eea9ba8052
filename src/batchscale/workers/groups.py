"""The runner of a cluster in groups: each group of hosts is a worker, which trains other trials than the others.

It lives in the chief, whose own group trains in a thread beside the driver. A group that has lost a host is gone until
the next start: what it was given is lost, and trained by the others.
"""

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any, final

from batchscale.cluster.groups import Group
from batchscale.cluster.peers import Peers
from batchscale.study.failure import Failure
from batchscale.workers.environment import computing_like_a_worker
from batchscale.workers.group_lead import GroupLead
from batchscale.workers.group_messages import FoundState, GroupGone, KeepState, WantState, WishToStop, decode, encode
from batchscale.workers.handle import WorkerHandle
from batchscale.workers.messages import Drain, Forget, Instruction, Shelve
from batchscale.workers.process_runner import ProcessRunner
from batchscale.workers.runner import Event, LossReason, Setup, WorkerInfo
from batchscale.workers.state_files import StateFiles

CLOSE_S = 60.0


@final
@dataclass(eq=False)
class GroupWorker(WorkerHandle):
    """A group, which process ``lead`` speaks for. It is there from the start until it is lost."""

    whole: Peers
    lead: int

    def tell(self, message: Instruction) -> None:
        """Send it a message, unless a host could not go on: nobody listens any more."""
        if not self.whole.ended:
            self.whole.ask(self.lead, encode(message))


@final
class GroupRunner(ProcessRunner[GroupWorker]):
    """Groups of hosts as workers. A host of the chief's group that is lost ends all; started again, the run goes on."""

    def __init__(
        self, whole: Peers, group: Group, setup: Setup, is_stopped: Callable[[], bool], on_stop: Callable[[], None]
    ) -> None:
        super().__init__()
        self._whole = whole
        self._on_stop = on_stop
        self._states = StateFiles(setup.checkpoint_dir, setup.shelf_bytes)
        self._workers |= {f"group-{i}": self._describe(group, setup, i) for i in range(group.count)}
        self._by_lead = {worker.lead: worker for worker in self._workers.values()}
        self._group = group
        whole.go_on_without(group.companions, self._note_loss)
        with ExitStack() as stack:
            stack.enter_context(computing_like_a_worker(setup.num_devices))  # before the engine is loaded
            lead = GroupLead(whole, group, changed(setup, checkpoint_dir=None), is_stopped)
            self._own = threading.Thread(target=lead.serve, daemon=True, name="own group")
            self._own.start()
            self._environment = stack.pop_all()

    def _describe(self, group: Group, setup: Setup, number: int) -> GroupWorker:
        lead = group.lead_of(number)
        names = [self._whole.cluster.name(lead + i) for i in range(group.size)]
        info = WorkerInfo(f"group-{number}", ", ".join(names), setup.num_devices * group.size)
        return GroupWorker(info, self._whole, lead, ready=True)

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

    def _hear(self, worker: GroupWorker, message: Any) -> list[Event]:
        if worker.info.worker_id not in self._workers:  # what came late is answered already
            return []
        if isinstance(message, GroupGone):
            return self._lose(worker, message.reason)
        if isinstance(message, KeepState):
            self._states.put(message.name, message.data)
        elif isinstance(message, WantState):
            self._whole.ask(worker.lead, encode(FoundState(self._states.get(message.name))))
        elif isinstance(message, WishToStop):
            self._on_stop()
        else:
            return worker.hear(message)
        return []

    def _lose(self, worker: GroupWorker, reason: str) -> list[Event]:
        del self._workers[worker.info.worker_id]
        self._notices.append(f"{reason} The run goes on without {worker.info.worker_id}.")
        if worker.jobs:
            worker.started = worker.jobs[0].job_id  # groups do not say what they begin: they take the next at once
        return worker.lose(LossReason.DIED, Failure(reason))

    def forget(self, batch_size: int, trial_ids: Sequence[int] = ()) -> None:
        """Pass it on to every group: they are few."""
        self._holders.forget(batch_size, trial_ids, ())  # who was given it need not be known any more
        self._tell_all(Forget(batch_size, tuple(trial_ids)))

    def shelve(self, batch_size: int, steps: Mapping[int, int]) -> None:
        """Pass it on to every group: the one that holds a trial sends its state."""
        self._holders.shelve(batch_size, steps, ())
        self._tell_all(Shelve(batch_size, dict(steps)))

    def stop(self) -> None:
        """Pass it on to every group, once."""
        if not self._closed:
            super().stop()

    def kill(self) -> None:
        """End the hosts of the other groups that are not at rest; the chief's own cannot end before its chunk does."""
        self._end([worker for worker in list(self._workers.values()) if not worker.at_rest])

    def close(self) -> None:
        """End all groups and wait for none that trains: it had its time to stop, or the chief ends for an error.

        An error is told to all hosts by whoever ends the command, and ends them at once.
        """
        if self._closed:
            return
        if self._stopping:
            self._end([worker for worker in self._workers.values() if worker.jobs])
        self.stop()
        self._closed = True
        self._tell_all(Drain())
        if not self._workers["group-0"].jobs:
            self._own.join(CLOSE_S)
        self._environment.close()

    def _end(self, workers: Sequence[GroupWorker]) -> None:
        for worker in workers:
            self._whole.let_go(worker.lead, "The run was stopped before this group had ended its chunk.")

    def _tell_all(self, message: Instruction) -> None:
        for worker in self._workers.values():
            worker.tell(message)
