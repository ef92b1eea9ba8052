"""A whole run over the hosts of a cluster: each trial is trained by all of them, one after the other.

The chief runs as with the inline runner. Every call of its engine host is first sent to the other hosts, which do the
same: their engines exchange gradients in every step.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from batchscale.errors import BatchscaleError
from batchscale.workers.engine_host import EngineHost, MakeEngine
from batchscale.workers.messages import Codec
from batchscale.workers.multihost.hosts import Hosts
from batchscale.workers.runner import Job, JobResult, Setup, WorkerActivity

_CALL = "do"

CALLS = Codec(
    {
        "run": tuple[Job],
        "discard": tuple[int, tuple[int, ...]],
        "finish": tuple[int, dict[int, int]],
        "close": tuple[()],
    },
    "The chief asks for",
)
"""The calls that the chief may send to the other hosts, with the types of their arguments."""


class StopForwarder:
    """The hosts as an engine sees them; a stop that any of them requests is also passed to ``on_stop``."""

    def __init__(self, hosts: Hosts, on_stop: Callable[[], None]) -> None:
        self._hosts = hosts
        self._on_stop = on_stop
        self.is_chief = hosts.is_chief
        self.chief_value = hosts.chief_value
        self.share = hosts.share

    def any(self, tag: str, mine: bool) -> bool:
        """Return True on all processes if it is true on any of them."""
        result = self._hosts.any(tag, mine)
        if result:
            self._on_stop()
        return result


class ChiefEngineHost(EngineHost):
    """The chief's engine host: it sends its calls to the other hosts."""

    def __init__(
        self,
        hosts: Hosts,
        on_stop: Callable[[], None],
        setup: Setup,
        worker_id: str,
        should_stop: Callable[[], bool],
        report: Callable[[WorkerActivity], None],
    ) -> None:
        super().__init__(setup, worker_id, should_stop, report, _engine_maker(hosts, on_stop))
        self._hosts = hosts

    def run(self, job: Job) -> JobResult:
        """Train a job. Any error ends the run on all hosts: they would not be at the same step."""
        self._call("run", job)
        try:
            return super().run(job)
        except BatchscaleError as error:
            self._hosts.report(str(error), 2)
            raise
        except Exception as error:
            self._hosts.await_loss()  # a lost host breaks the exchange of gradients: the loss is reported first
            self._hosts.fail(f"{type(error).__name__}: {error}")
            raise

    def discard(self, batch_size: int, trial_ids: Sequence[int] = ()) -> None:
        """Drop trials, or a study's engine, on all hosts."""
        self._call("discard", batch_size, tuple(trial_ids))
        super().discard(batch_size, trial_ids)

    def finish(self, batch_size: int, steps: Mapping[int, int]) -> None:
        """Drop finished trials on all hosts; the chief stores their states."""
        self._call("finish", batch_size, dict(steps))
        super().finish(batch_size, steps)

    def close(self) -> None:
        """Close the engines on all hosts."""
        self._call("close")
        super().close()

    def _call(self, name: str, *arguments: object) -> None:
        if not self._hosts.ended:
            self._hosts.share(_CALL, CALLS.encode(name, arguments))


def chief_host_maker(hosts: Hosts, on_stop: Callable[[], None]) -> Callable[..., EngineHost]:
    """Return the function that makes the chief's engine host."""
    return partial(ChiefEngineHost, hosts, on_stop)


def follow_chief(hosts: Hosts, setup: Setup, should_stop: Callable[[], bool]) -> None:
    """Execute the chief's calls until it closes its engines."""
    make_engine = _engine_maker(hosts, lambda: None)
    engine_host = EngineHost(setup, f"process-{hosts.process}", should_stop, make_engine=make_engine)
    while True:
        name, arguments = CALLS.decode(hosts.share(_CALL, b""))
        getattr(engine_host, name)(*arguments)
        if name == "close":
            return


def _engine_maker(hosts: Hosts, on_stop: Callable[[], None]) -> MakeEngine:
    from batchscale.workers.training_engine import make_engine  # loads JAX

    return partial(make_engine, hosts=StopForwarder(hosts, on_stop))
