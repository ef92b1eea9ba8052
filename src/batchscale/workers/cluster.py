"""A whole run over the hosts of a cluster: each trial is trained by all of them, one after the other.

The chief's driver runs as it does with the inline runner. Whatever its host of engines is asked to do, the other hosts
are told first, and do the same: their engines meet in every step.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from batchscale.cluster.peers import Peers
from batchscale.errors import BatchscaleError
from batchscale.workers.codec import Codec
from batchscale.workers.engine_host import EngineHost, MakeEngine
from batchscale.workers.runner import Job, JobResult, Setup, WorkerActivity

_DO = "do"

CALLS = Codec(
    {
        "run": tuple[Job],
        "forget": tuple[int, tuple[int, ...]],
        "shelve": tuple[int, dict[int, int]],
        "close": tuple[()],
    },
    "The chief asks for",
)
"""What the chief may ask of the other hosts, and the kinds of what goes with it: nothing else is taken in."""


class StopListener:
    """The other processes, with an ear for their wish to stop: a signal to any host stops the run."""

    def __init__(self, peers: Peers, on_stop: Callable[[], None]) -> None:
        self._peers = peers
        self._on_stop = on_stop
        self.is_chief = peers.is_chief
        self.chiefs = peers.chiefs
        self.share = peers.share

    def any(self, tag: str, mine: bool) -> bool:
        """Whether it is so for any of them."""
        found = self._peers.any(tag, mine)
        if found:
            self._on_stop()
        return found


class SharedHost(EngineHost):
    """The chief's host of engines: the other hosts are told what it does."""

    def __init__(
        self,
        peers: Peers,
        on_stop: Callable[[], None],
        setup: Setup,
        worker_id: str,
        should_stop: Callable[[], bool],
        tell: Callable[[WorkerActivity], None],
        make_engine: MakeEngine | None = None,
    ) -> None:
        super().__init__(setup, worker_id, should_stop, tell, make_engine or engine_maker(peers, on_stop))
        self._peers = peers

    def run(self, job: Job) -> JobResult:
        """The job's answer. Whatever goes wrong ends the run on all hosts: they would not be at the same step."""
        self._tell_others("run", job)
        try:
            return super().run(job)
        except BatchscaleError as error:
            self._peers.fail(str(error), 2)
            raise
        except Exception as error:
            self._peers.await_loss()  # a host that died takes the exchange of gradients with it: that is said first
            self._peers.fail(f"{type(error).__name__}: {error}")
            raise

    def forget(self, batch_size: int, trial_ids: Any = ()) -> None:
        """Drop trials, or a study's engine, on all hosts."""
        self._tell_others("forget", batch_size, tuple(trial_ids))
        super().forget(batch_size, trial_ids)

    def shelve(self, batch_size: int, steps: Any) -> None:
        """Drop ended trials on all hosts; the chief keeps their states."""
        self._tell_others("shelve", batch_size, dict(steps))
        super().shelve(batch_size, steps)

    def close(self) -> None:
        """End what engines started, on all hosts."""
        self._tell_others("close")
        super().close()

    def _tell_others(self, call: str, *arguments: object) -> None:
        if not self._peers.ended:
            self._peers.share(_DO, CALLS.encode(call, arguments))


def share_host(peers: Peers, on_stop: Callable[[], None]) -> Callable[..., EngineHost]:
    """What makes the chief's host of engines."""
    return partial(SharedHost, peers, on_stop)


def follow(peers: Peers, setup: Setup, should_stop: Callable[[], bool]) -> None:
    """Do what the chief does, until it closes its engines."""
    host = EngineHost(setup, f"process-{peers.cluster.process}", should_stop, make_engine=engine_maker(peers, _nothing))
    while True:
        call, arguments = CALLS.decode(peers.share(_DO, b""))
        getattr(host, call)(*arguments)
        if call == "close":
            return


def engine_maker(peers: Peers, on_stop: Callable[[], None]) -> MakeEngine:
    """What makes the engines of processes that train together."""
    from batchscale.workers.training_engine import make_engine

    return partial(make_engine, hosts=StopListener(peers, on_stop))


def _nothing() -> None:
    return None
