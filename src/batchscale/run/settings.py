"""The settings of a run and of its loop: where trials are trained, by how many workers, and how much is stored."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from batchscale.run.scheduler import STRETCH_S
from batchscale.workers.fork_server import TRAINING_ENGINE, ForkServer
from batchscale.workers.multihost.hosts import Hosts
from batchscale.workers.runner import Runner, Setup

RUNNERS = ("local", "inline", "ray", "slurm")


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run; none of them changes its records.

    ``keep_states_gb`` limits the space of the last states of ended trials, shared evenly by the studies. ``hosts`` are
    the other hosts of a cluster. ``ray_address`` is the cluster of the runner 'ray'. ``keep_going`` trains on although
    the first trials of a script all hang or diverge. ``track`` names the tools that trials are mirrored to, as
    ``NAME:TARGET``. ``make_runner`` makes a runner that replaces the named one. The runner 'local' forks
    its workers from ``fork_server``.
    """

    runner: str = "local"
    workers: int | None = None
    data_dir: Path | None = None
    retries: int = 3
    retry_incomplete: bool = False
    keep_states_gb: float = 4.0
    hosts: Hosts | None = None
    ray_address: str | None = None
    keep_going: bool = False
    track: tuple[str, ...] = ()
    engine: str = TRAINING_ENGINE
    engine_options: dict[str, str] = field(default_factory=dict)
    make_runner: Callable[[Setup], Runner] | None = None
    fork_server: ForkServer | None = None


@dataclass(frozen=True)
class LoopSettings:
    """``retries``: how often a trial is tried again after its worker died or raised, without progress in between.

    ``stretch_s`` is about how long a trial trains before its measurements come back. ``keep_going`` continues although
    the first scripts all hang or diverge.
    """

    retries: int = 3
    report_every_s: float = 1.0
    stretch_s: float = STRETCH_S
    keep_going: bool = False
