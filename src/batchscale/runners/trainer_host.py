"""The engine of trials that a script of the user's own trains: made in workers, or in the driver's process."""

import json
import os
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from batchscale.runners.host import Engine
from batchscale.runners.runner import Setup
from batchscale.spec import Study
from batchscale.trainers.engine import TrainerEngine
from batchscale.trainers.pool import Pool
from batchscale.trainers.trial_run import Surroundings

PLACE_VARIABLE = "BATCHSCALE_PLACE"
"""The environment variable that tells a worker its place among the workers of its machine, from 0."""

ENVIRONMENT = "environment"
WORKERS = "workers"


def trainer_options(environment: Mapping[str, str], workers: int) -> dict[str, str]:
    """The options of a setup: a script runs in the user's environment, not in that of our workers."""
    return {ENVIRONMENT: json.dumps(dict(environment)), WORKERS: str(workers)}


def make_engine(setup: Setup, study: Study, population: int | None) -> Engine:  # noqa: ARG001 - one script, one trial
    """The engine of a study; waiting scripts of all studies share one limit."""
    trainer = setup.experiment.trainer
    assert trainer is not None
    root = setup.checkpoint_dir or Path(tempfile.mkdtemp(prefix="batchscale-"))
    place = int(os.environ.get(PLACE_VARIABLE, "0"))
    around = Surroundings(
        trainer=trainer,
        study=study,
        root=root / str(study.batch_size),
        environment=json.loads(setup.options.get(ENVIRONMENT, "null")) or dict(os.environ),
        device=trainer.devices[place % len(trainer.devices)] if trainer.devices else None,
        workers=int(setup.options.get(WORKERS, "1")),
    )
    return TrainerEngine(around, _pool(str(root), trainer.max_paused), setup.shelf_bytes)


@lru_cache(maxsize=1)
def _pool(_root: str, max_paused: int) -> Pool:
    return Pool(max_paused)
