"""The engine of trials that the user's own training script trains."""

import json
import os
import tempfile
from functools import lru_cache
from pathlib import Path

from batchscale.spec.plan import Study
from batchscale.spec.trainer import TrainerSpec
from batchscale.trainers.engine import TrainerEngine
from batchscale.trainers.pool import DEFAULT_MAX_PAUSED, ScriptPool
from batchscale.trainers.trial_run import StudyContext
from batchscale.workers.engine_host import Engine
from batchscale.workers.environment import PLACE_VARIABLE, memory_limit
from batchscale.workers.runner import Setup


def make_engine(setup: Setup, study: Study, population: int | None) -> Engine:  # noqa: ARG001 - one script, one trial
    """Make the engine of a study; paused scripts of all studies share one limit."""
    trainer = setup.experiment.trainer
    assert trainer is not None
    root = setup.checkpoint_dir or Path(tempfile.mkdtemp(prefix="batchscale-"))
    environment = json.loads(setup.options.get("environment", "null")) or dict(os.environ)
    place = int(os.environ.get(PLACE_VARIABLE, "0"))
    context = StudyContext(
        trainer=trainer,
        study=study,
        root=root / str(study.batch_size),
        environment=environment | json.loads(setup.options.get("passed", "{}")),
        device=trainer.devices[place % len(trainer.devices)] if trainer.devices else None,
        workers=int(setup.options.get("workers", "1")),
    )
    pool = _make_pool(str(root), _max_paused(trainer), context.workers)
    return TrainerEngine(context, pool, setup.max_finished_bytes)


def _max_paused(trainer: TrainerSpec) -> int:
    if trainer.max_paused is not None:
        return trainer.max_paused
    return 1 if trainer.devices else DEFAULT_MAX_PAUSED  # the free memory of a device is not visible here


@lru_cache(maxsize=1)
def _make_pool(_root: str, max_paused: int, workers: int) -> ScriptPool:
    """Make the pool of this process; paused scripts take at most half of a worker's share of the memory."""
    return ScriptPool(max_paused, memory_limit(workers) / 2)
