"""The lead of a group of hosts: it trains what the chief asks for, with the other hosts of its group.

It writes nothing: states of trials go to the chief, and come from there.
"""

import queue
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, final

import psutil

from batchscale.cluster.groups import Group
from batchscale.cluster.peers import Peers
from batchscale.workers.cluster import SharedHost, StopListener
from batchscale.workers.engine_host import EngineHost
from batchscale.workers.environment import computing_like_a_worker
from batchscale.workers.group_messages import FoundState, KeepState, WantState, WishToStop, decode, encode
from batchscale.workers.messages import Answered, Drain, Forget, Kept, Raised, Shelve, Stop
from batchscale.workers.runner import TRAINING_ENGINE, Job, Setup
from batchscale.workers.worker import explain_error

LOOK_EVERY_S = 0.5


@final
class GroupLead:
    """One end of the conversation with the chief: a thread listens, the caller's trains."""

    def __init__(self, whole: Peers, group: Group, setup: Setup, is_stopped: Callable[[], bool]) -> None:
        self._whole = whole
        self._is_stopped = is_stopped
        self._stop = threading.Event()
        self._wished = False
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._memory = psutil.Process()
        self._host = self._make_host(group, setup)

    def serve(self) -> None:
        """Train until the chief closes its runner."""
        threading.Thread(target=self._listen, daemon=True, name="lead").start()
        while True:
            try:
                message = self._queue.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                self._should_stop()  # a signal to a group that has nothing to do
                continue
            if isinstance(message, Job):
                self._run(message)
            elif isinstance(message, Forget):
                self._host.forget(message.batch_size, message.trial_ids)
            elif isinstance(message, Shelve):
                self._host.shelve(message.batch_size, message.steps)
            elif isinstance(message, Stop):
                self._host.keep()
                self._say(Kept())
            else:
                self._host.close()
                return

    def _make_host(self, group: Group, setup: Setup) -> EngineHost:
        name = f"group-{group.number}"
        if setup.engine != TRAINING_ENGINE:
            return EngineHost(setup, name, self._should_stop, self._say)
        from batchscale.workers.training_engine import make_engine  # brings JAX

        made = partial(make_engine, make_files=partial(_ChiefFiles, self._say, self._found))
        if group.peers is None:
            return EngineHost(setup, name, self._should_stop, self._say, made)
        together = partial(made, hosts=StopListener(group.peers, self._wish))
        return SharedHost(group.peers, self._wish, setup, name, self._should_stop, self._say, together)

    def _listen(self) -> None:
        while True:
            message = decode(self._whole.asked.get())
            if isinstance(message, FoundState):
                self._found.put(message.data)
                continue
            if isinstance(message, Stop | Drain):
                self._stop.set()
            self._queue.put(message)
            if isinstance(message, Drain):
                self._found.put(b"")  # nobody answers any more
                return

    def _run(self, job: Job) -> None:
        try:
            done = self._host.run(job)
        except (Exception, MemoryError) as error:  # noqa: BLE001 - whatever a trial raises is an outcome of its job
            traceback.print_exc()
            self._say(Raised(job.job_id, *explain_error(error)))
        else:
            self._say(Answered(done, self._memory.memory_info().rss))

    def _should_stop(self) -> bool:
        if self._is_stopped():
            self._wish()
        return self._stop.is_set() or self._is_stopped()

    def _wish(self) -> None:
        """Tell the chief, once, that a host of this group was asked to stop."""
        if not self._wished and not self._stop.is_set():
            self._wished = True
            self._say(WishToStop())

    def _say(self, message: object) -> None:
        if not self._whole.ended:
            self._whole.tell(encode(message))


@final
class _ChiefFiles:
    """The state files of one study, stored by the chief."""

    def __init__(self, say: Callable[[object], None], found: "queue.SimpleQueue[bytes]", batch_size: int) -> None:
        self._say, self._found, self._batch_size = say, found, batch_size

    def put(self, name: str, content: bytes) -> None:
        """Send a file."""
        self._say(KeepState(f"{self._batch_size}/{name}", content))

    def get(self, name: str) -> bytes:
        """Request a file, and wait for it; empty if there is none."""
        self._say(WantState(f"{self._batch_size}/{name}"))
        return self._found.get()

    def remove(self, name: str) -> None:
        """Remove a file."""
        self.put(name, b"")


def lead_group(whole: Peers, group: Group, setup: Setup, is_stopped: Callable[[], bool]) -> None:
    """Lead a group of hosts until the chief closes its runner."""
    with computing_like_a_worker(setup.num_devices):
        GroupLead(whole, group, setup, is_stopped).serve()
