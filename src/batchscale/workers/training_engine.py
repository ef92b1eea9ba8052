"""The engine of real trials: loaded in workers only, because it brings JAX."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.plan import Study
from batchscale.training.host_group import HostGroup
from batchscale.training.state_store import RemoteFiles, RemoteStateStore
from batchscale.training.study_engine import EngineSettings, StudyEngine
from batchscale.workers.engine_host import Engine
from batchscale.workers.runner import Setup
from batchscale.workloads.registry import get_workload
from batchscale.workloads.workload import Workload

MakeFiles = Callable[[int], RemoteFiles]
"""Returns the files that hold the states of the study with this batch size."""


def make_engine(
    setup: Setup,
    study: Study,
    population: int | None,
    hosts: HostGroup | None = None,
    make_files: MakeFiles | None = None,
) -> Engine:
    """The engine of a study; the workload's data is read once per process."""
    states = setup.states_url or setup.checkpoint_dir
    settings = EngineSettings(
        checkpoint_dir=f"{states}/{study.batch_size}" if states else None,
        population=population,
        max_finished_bytes=setup.shelf_bytes,
        devices=setup.num_devices,
        exact=setup.experiment.run.exact,
    )
    workload = _load(_Key(setup.experiment.workload, setup.data_dir))
    store = RemoteStateStore(make_files(study.batch_size), keeps_finished=True) if make_files else None
    return StudyEngine(workload, study, setup.experiment.evaluation, settings, hosts, store)


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
