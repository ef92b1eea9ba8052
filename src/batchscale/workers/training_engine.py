"""The engine of real trials: loaded in workers only, because it brings JAX."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from batchscale.records.remote_store import RemoteStore
from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.plan import Study
from batchscale.training.agreement import Agreement
from batchscale.training.sent_states import StatePost
from batchscale.training.study_engine import EngineSettings, StudyEngine
from batchscale.workers.engine_host import Engine
from batchscale.workers.remote_states import RemoteStates
from batchscale.workers.runner import Setup
from batchscale.workloads.registry import get_workload
from batchscale.workloads.workload import Workload

MakePost = Callable[[int], StatePost]
"""Where the states of the study with this batch size are sent."""


def make_engine(
    setup: Setup,
    study: Study,
    population: int | None,
    agreement: Agreement | None = None,
    make_post: MakePost | None = None,
) -> Engine:
    """The engine of a study; the workload's data is read once per process."""
    checkpoints = setup.checkpoint_dir / str(study.batch_size) if setup.checkpoint_dir else None
    settings = EngineSettings(
        checkpoint_dir=checkpoints,
        population=population,
        max_shelf_bytes=setup.shelf_bytes,
        devices=setup.num_devices,
        exact=setup.experiment.run.exact,
    )
    workload = _load(_Key(setup.experiment.workload, setup.data_dir))
    post = make_post(study.batch_size) if make_post else None
    if post is None and setup.states_url is not None:
        post = RemoteStates(RemoteStore(setup.states_url), study.batch_size)
    return StudyEngine(workload, study, setup.experiment.evaluation, settings, agreement, post)


class _Key:
    """The workload to load, comparable by what it says: its options are mappings and cannot be hashed."""

    def __init__(self, spec: WorkloadSpec, data_dir: Path | None) -> None:
        self.spec, self.data_dir = spec, data_dir
        self._text = repr((spec, data_dir))

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._text == other._text


@lru_cache(maxsize=1)
def _load(key: _Key) -> Workload:
    return get_workload(key.spec, key.data_dir)
