"""Records made in memory: trials whose curves follow a known law, and trials written down by hand."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from batchscale.records.frames import STUDY_SCHEMA, TRIAL_SCHEMA, Records
from batchscale.records.metadata.columns import study_metadata_row, trial_metadata_row
from batchscale.records.metadata.study import StudyMetadata
from batchscale.records.metadata.trial import Hardware, TrialMetadata
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

METRIC = "val/classification_error"
GOAL = Goal(METRIC, 0.1)
WORKLOAD = WorkloadName("toy_data", "toy_model", "momentum")
SPACE = {
    "learning_rate": {"min_value": 1e-4, "max_value": 1.0, "scale": "LOG_SCALE", "type": "DOUBLE"},
    "momentum": {"min_value": 0.0, "max_value": 0.999, "scale": "REVERSE_LOG_SCALE", "type": "DOUBLE"},
    "label_smoothing": {"feasible_points": [0.0, 0.1], "type": "DISCRETE"},
}


@dataclass
class MadeTrial:
    """One trial: its metaparameters, its status, and rows of (step, values by metric)."""

    parameters: Mapping[str, float]
    rows: Sequence[tuple[int, Mapping[str, float]]]
    status: str = "COMPLETE"
    facts: TrialMetadata | None = None


@dataclass
class MadeStudy:
    """One study; ``space`` as published."""

    batch_size: int
    trials: Sequence[MadeTrial]
    workload: WorkloadName = WORKLOAD
    space: Mapping[str, Any] = field(default_factory=lambda: SPACE)
    train_steps: int = 1000
    facts: StudyMetadata | None = None


def make_records(studies: Sequence[MadeStudy]) -> Records:
    """Frames as a reader of a tree would give them."""
    names = sorted({name for study in studies for trial in study.trials for name in trial.parameters})
    metrics = sorted({m for study in studies for trial in study.trials for _, values in trial.rows for m in values})
    study_rows, trial_rows = [], []
    rows: dict[WorkloadName, list[tuple[Any, ...]]] = {}
    for study in studies:
        key = (study.workload.dataset, study.workload.model, study.workload.optimizer, study.batch_size)
        study_rows.append(
            (*key, study.train_steps, False, json.dumps(study.space), study_metadata_row(study.facts), "{}")
        )
        own = rows.setdefault(study.workload, [])
        for trial_id, trial in enumerate(study.trials, start=1):
            last = trial.rows[-1][0] if trial.rows else 0
            values = [trial.parameters.get(name) for name in names]
            trial_rows.append((*key, trial_id, trial.status, last, trial_metadata_row(trial.facts), "{}", *values))
            own += [(study.batch_size, trial_id, step, *(v.get(m) for m in metrics)) for step, v in trial.rows]
    schema = {"batch_size": pl.Int64, "trial_id": pl.Int64, "step": pl.Int64, **dict.fromkeys(metrics, pl.Float64)}
    frames = {name: pl.DataFrame(found, schema=schema, orient="row") for name, found in rows.items()}
    return Records(
        pl.DataFrame(study_rows, schema=dict(STUDY_SCHEMA), orient="row"),
        pl.DataFrame(trial_rows, schema={**TRIAL_SCHEMA, **dict.fromkeys(names, pl.Float64)}, orient="row"),
        {name: frame.lazy for name, frame in frames.items()},
    )


def simulated(
    sizes: Sequence[int] = (1, 4, 16, 64, 256, 1024),
    trials: int = 12,
    *,
    workload: WorkloadName = WORKLOAD,
    hardest: float = 0.02,
    evaluations: int = 40,
    seed: int = 0,
) -> Records:
    """Trials whose error falls as 1/(1 + s/τ), fastest near one effective learning rate; one in six diverges."""
    rng = np.random.default_rng(seed)
    studies = []
    for size in sizes:
        budget = int(2000 * (1 + 32 / size))
        steps = np.unique(np.linspace(0, budget, evaluations).astype(int))
        made = []
        for index in range(trials):
            rate, momentum = 10 ** rng.uniform(-4, 0), 1 - 10 ** rng.uniform(-3, 0)
            slow = np.exp(0.4 * (np.log10(rate / (1 - momentum)) + 0.5) ** 2)
            tau = 20 * (1 + 32 / size) * slow
            error = hardest + (0.9 - hardest) / (1 + steps / tau)
            diverged = index % 6 == 5
            rows = [
                (int(s), {METRIC: float(e), "train/classification_error": float(e) * 0.8})
                for s, e in zip(steps, error, strict=True)
            ]
            made.append(
                MadeTrial(
                    {"learning_rate": rate, "momentum": momentum, "label_smoothing": [0.0, 0.1][index % 2]},
                    rows[:3] if diverged else rows,
                    "INFEASIBLE" if diverged else "COMPLETE",
                    TrialMetadata(seed=index, search=1, stop_reason="budget", hardware=Hardware("x86_64")),
                )
            )
        facts = StudyMetadata(goal=str(GOAL), seed=7, stop_rule="budget", code_version="0.1.0")
        studies.append(MadeStudy(size, made, workload, train_steps=budget, facts=facts))
    return make_records(studies)
