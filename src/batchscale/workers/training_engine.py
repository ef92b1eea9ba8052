"""The engine of batchscale's own trials: loaded in workers only, because it loads JAX."""

from functools import lru_cache
from pathlib import Path

from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.plan import Study
from batchscale.training.hosts import HostGroup
from batchscale.training.study_engine import EngineSettings, StudyEngine
from batchscale.workers.engine_host import Engine
from batchscale.workers.runner import Setup
from batchscale.workloads.registry import get_workload
from batchscale.workloads.workload import Workload


def make_engine(setup: Setup, study: Study, population: int | None, hosts: HostGroup | None = None) -> Engine:
    """Make the engine of a study; the workload's data is read once per process."""
    states = setup.states_url or setup.checkpoint_dir
    settings = EngineSettings(
        checkpoint_dir=f"{states}/{study.batch_size}" if states else None,
        population=population,
        max_finished_bytes=setup.max_finished_bytes,
        devices=setup.num_devices,
        exact=setup.experiment.run.exact,
    )
    workload = _load(_WorkloadKey(setup.experiment.workload, setup.data_dir))
    return StudyEngine(workload, study, setup.experiment.evaluation, settings, hosts)


class _WorkloadKey:
    """A key of the cache, compared by its text: the options of a workload are mappings and cannot be hashed."""

    def __init__(self, spec: WorkloadSpec, data_dir: Path | None) -> None:
        self.spec, self.data_dir = spec, data_dir
        self._text = repr((spec, data_dir))

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WorkloadKey) and self._text == other._text


@lru_cache(maxsize=1)
def _load(key: _WorkloadKey) -> Workload:
    return get_workload(key.spec, key.data_dir)
