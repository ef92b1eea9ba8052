"""States of a trial on several virtual devices of one process: a program, since their number is fixed at its start.

``python sharded_states.py OUT MODEL:DEVICES:EXACT:MICROBATCH:… ...`` writes, for each case, the leaves of the trial's
state and its measurements to ``OUT/CASE.npz``. With ``PLACE/COUNT/PORT`` in SHARDED_PROCESS this is one of so many
processes that train every case together, each with the devices of the case; the first one writes.
"""

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
BATCH_SIZE, STEPS = 14, 4


@dataclass(frozen=True)
class Case:
    """What is trained, on how many devices, and how."""

    model: str
    devices: int = 1
    exact: bool = False
    microbatch: int | None = None
    fed: bool = False
    batch_size: int = BATCH_SIZE
    population: int = 1
    branched: bool = False

    @property
    def name(self) -> str:
        """The case as one word."""
        values = (self.exact, self.microbatch or 0, self.fed, self.batch_size, self.population, self.branched)
        return ":".join([self.model, str(self.devices), *(str(int(value)) for value in values)])

    @classmethod
    def parse(cls, text: str) -> "Case":
        """The case of a name."""
        model, *numbers = text.split(":")
        devices, exact, microbatch, fed, batch_size, population, branched = map(int, numbers)
        return cls(model, devices, bool(exact), microbatch or None, bool(fed), batch_size, population, bool(branched))


def make_engine(case: Case, checkpoint_dir: Path | None = None):
    """The engine of a case."""
    from real_workloads import make_tiny

    from batchscale.spec.durations import EvaluationPlan
    from batchscale.spec.experiment import StopRule
    from batchscale.spec.goal import Goal
    from batchscale.spec.horizon_free import Branches
    from batchscale.spec.plan import Study
    from batchscale.spec.space import SearchSpace
    from batchscale.training import study_engine
    from batchscale.training.study_engine import EngineSettings, StudyEngine

    workload = make_tiny(case.model)
    study = Study(
        workload=workload.name,
        batch_size=case.batch_size,
        train_steps=STEPS,
        evaluation_steps=EvaluationPlan(every=2).steps(STEPS),
        space=SearchSpace(),
        fixed={},
        trials=4,
        max_attempts=40,
        goal=Goal.parse(f"val/{workload.metrics[0].name} < 0.0"),
        stop=StopRule.BUDGET,
        seed=0,
        half_lives=(1.5, 64.0) if case.branched else (),
        branches=Branches(decay=0.5) if case.branched else None,
    )
    study_engine.CHUNK_S = 1e6  # processes that ask nobody take as many steps at a time
    settings = EngineSettings(
        population=case.population,
        devices=case.devices,
        exact=case.exact,
        microbatch=case.microbatch,
        checkpoint_dir=checkpoint_dir,
    )
    with as_if_nothing_fitted() if case.fed else contextlib.nullcontext():
        return StudyEngine(workload, study, EvaluationPlan(examples={"train": 0, "val": "all"}), settings)


@contextlib.contextmanager
def as_if_nothing_fitted():
    """Inside, every training set is too large for a device."""
    from batchscale.training import training_data

    measure = training_data.nbytes
    training_data.nbytes = lambda _tree: 2**60
    try:
        yield
    finally:
        training_data.nbytes = measure


def train(engine, until: int = STEPS):
    """The state of trial 1 and its measurements."""
    import jax
    import numpy as np

    from batchscale.training.study_engine import TrialTask

    # a small learning rate: near chaos, differences of rounding would grow with every step
    (progress,) = engine.advance([TrialTask(1, {"learning_rate": 0.001, "momentum": 0.9}, 1, until)])
    state = engine._population.member(1)
    leaves = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree.leaves_with_path(state)}
    rows = {f"row {step} {name}": np.float64(value) for step, row in progress.rows for name, value in row.items()}
    return leaves | rows


def join_others(text: str) -> int:
    """The place of this process among those that train together."""
    if not text:
        return 0
    import jax

    place, count, port = map(int, text.split("/"))
    jax.distributed.initialize(f"127.0.0.1:{port}", count, place, cluster_detection_method="deactivate")
    return place


def main(out: str, *names: str) -> None:
    """Train every case."""
    sys.path.insert(0, str(HERE))
    import numpy as np

    place = join_others(os.environ.get("SHARDED_PROCESS", ""))
    for name in names:
        found = train(make_engine(Case.parse(name)))
        if place == 0:
            np.savez(Path(out) / f"{name}.npz", **found)


if __name__ == "__main__":
    flags = [*os.environ.get("XLA_FLAGS", "").split(), "--xla_force_host_platform_device_count=8"]
    if any(Case.parse(name).exact for name in sys.argv[2:]):
        # Bits are promised of programs as users have them, not of those compiled in a hurry; the last flag counts.
        flags += ["--xla_backend_optimization_level=3", "--xla_cpu_use_fusion_emitters=true"]
    os.environ["XLA_FLAGS"] = " ".join(flags)
    main(*sys.argv[1:])
