"""The Ray runner: a worker on every place of a cluster that has room for one, for as long as it is there.

Nodes may come and go at any time: new ones get workers, the jobs of lost ones come back as taken away, through no fault
of their trials. Nothing on a node is ever needed to resume.
"""

import contextlib
import re
import time
from dataclasses import dataclass
from typing import Any, final

from batchscale.errors import RunError, one_line
from batchscale.machine import count_accelerators, count_cores
from batchscale.study.failure import Failure
from batchscale.workers.codec import decode_reply
from batchscale.workers.handle import is_out_of_memory
from batchscale.workers.messages import Ready, Refused, Reply
from batchscale.workers.process_runner import ProcessRunner
from batchscale.workers.ray.answers import check_look, check_news
from batchscale.workers.ray.crew import ClusterLostError, Crew
from batchscale.workers.ray.link import ClusterLink
from batchscale.workers.ray.papers import make_papers
from batchscale.workers.ray.seats import Seat, Stage, end_actors
from batchscale.workers.runner import Event, LossReason, Setup

END_S = 5.0
"""The longest that the end of actors is waited for."""


@dataclass(frozen=True)
class RaySettings:
    """Which cluster (None: a local one), and how many workers at most."""

    address: str | None = None
    workers: int | None = None


@final
class RayRunner(ProcessRunner[Seat]):
    """Workers on a Ray cluster; fewer of them after one ran out of memory, which those of a node share."""

    def __init__(self, setup: Setup, settings: RaySettings) -> None:
        super().__init__()
        self._papers = make_papers(setup)
        self._settings = settings
        self._crew: Crew | None = None
        self._ray: Any = None
        self._papers.lay_out()  # before anything is started: states must have a place
        cores = max(count_cores(), (settings.workers or 0) * setup.num_devices)
        self._link = ClusterLink(settings.address, cores, count_accelerators())
        if settings.address is None:
            self._notices.append("A local Ray cluster is starting.")
        else:
            try:
                self._connect()
            except BaseException:
                self.close()
                raise

    def wait(self, timeout_s: float) -> list[Event]:
        """What the workers have said; the cluster is followed on the way."""
        if self._closed:
            return []
        events, self._events = self._events, []
        if self._crew is None:
            self._connect()
            return events
        try:
            if not self._stopping:
                self._crew.follow()
            for reference in self._answered(0.0 if events else timeout_s):
                seat = self._crew.asked.pop(reference, None)
                if seat is not None:  # else it was given up by what another one said
                    events += self._hear(self._crew, seat, reference)
        except _gone(self._ray) as error:
            self._link.give_up()
            raise RunError(
                f"The Ray cluster must be there as long as the run. It was lost: {one_line(error, 300)}. Nothing that "
                "was recorded is lost; run the same command again."
            ) from None
        return events

    def stop(self) -> None:
        """Pass it on to every worker that has a place, once; the others are given up."""
        if not self._stopping and self._crew is not None:
            self._crew.give_up_waiting()
        super().stop()

    def kill(self) -> None:
        """Kill all workers, from any thread; none is replaced from now on."""
        self._stopping = True
        if self._ray is not None:
            end_actors(self._ray, list(self._workers.values()))

    def close(self) -> None:
        """Kill all workers, wait for their end, and hang up."""
        if self._closed:
            return
        self._closed = True
        self.kill()
        if self._crew is not None and self._crew.asked:
            with contextlib.suppress(self._ray.exceptions.RayError, ConnectionError):
                self._ray.wait(list(self._crew.asked), num_returns=len(self._crew.asked), timeout=END_S)
        self._crew = self._ray = None
        self._workers.clear()
        self._link.close()
        self._papers.put_away()

    def _connect(self) -> None:
        ray = self._link.connect()
        if ray is not None:
            self._ray = ray
            self._crew = Crew(ray, self._papers, self._settings.workers, self._workers, self._notices)

    def _answered(self, timeout_s: float) -> list[Any]:
        """The calls that were answered, all of them, after waiting for the first."""
        assert self._crew is not None
        if not self._crew.asked:
            time.sleep(timeout_s)
            return []
        first, rest = self._ray.wait(list(self._crew.asked), num_returns=1, timeout=timeout_s)
        if first and rest:
            return [*first, *self._ray.wait(rest, num_returns=len(rest), timeout=0)[0]]
        return list(first)

    def _hear(self, crew: Crew, seat: Seat, reference: Any) -> list[Event]:
        try:
            answer = self._ray.get(reference)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError) as error:
            # a large answer lies on the worker's node, and is lost with it before the actor's end is known
            return crew.lose(seat, *_explain_loss(error), stopping=self._stopping)
        except (self._ray.exceptions.RayTaskError, self._ray.exceptions.RuntimeEnvSetupError) as error:
            return crew.lose(seat, LossReason.DIED, Failure(one_line(error, 600)), stopping=self._stopping)
        if seat.stage is Stage.PLACING:
            crew.start(seat, check_look(answer))
            return []
        if seat.stage is Stage.STARTING:
            seat.stage = Stage.HEARD
            crew.ask_news(seat)
            return []
        messages, ended = check_news(answer)
        events = [event for data in messages for event in _take_in(crew, seat, decode_reply(data))]
        if seat.info.worker_id not in crew.seats:
            return events
        if ended is not None:
            return events + crew.lose(seat, LossReason.DIED, ended, stopping=self._stopping)
        crew.ask_news(seat)
        return events


def _take_in(crew: Crew, seat: Seat, reply: Reply) -> list[Event]:
    events = seat.hear(reply)
    if isinstance(reply, Ready):
        crew.note_ready(seat, reply.blind)
    elif isinstance(reply, Refused):
        crew.refuse(seat, reply.reason)
    worn = seat.needs_restart(reply, crew.memory_share(seat))
    if worn or (is_out_of_memory(reply) and crew.lower_limit()):
        seat.drain()
    return events


def _gone(ray: Any) -> tuple[type[Exception], ...]:
    """What is raised when the cluster does not answer any more."""
    return ClusterLostError, ray.exceptions.RaySystemError, ray.exceptions.RpcError, ConnectionError


def _explain_loss(error: Exception) -> tuple[LossReason, Failure]:
    """Why an actor is gone. Trials are trained in another process than the actor's: its end is not their doing."""
    text = " ".join(str(error).split())
    cause = re.search(r"The actor (is dead|died) because .*", text)
    words = one_line(cause[0] if cause else text, 300)
    return (LossReason.OUT_OF_MEMORY if "low on memory" in text else LossReason.PREEMPTED), Failure(words)
