"""Small values for tests of studies and runs: an experiment on the fake engine, its workload and studies."""

import json
from pathlib import Path

from batchscale.records.metadata.base import CHECKSUM_KEY
from batchscale.run.session import RunSettings, run_plan
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.durations import Budget, EvaluationPlan, Unit
from batchscale.spec.experiment import Experiment, SearchPlan, StopRule, WorkloadSpec
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Study, WorkloadInfo, make_plan
from batchscale.spec.space import ParameterConfig, ParameterType, Scale, SearchSpace
from batchscale.spec.workload_name import WorkloadName
from batchscale.workers.runner import Setup

FAKE_ENGINE = "fake_engine:make_engine"


def fake_space(low: float = 0.001, high: float = 0.5) -> SearchSpace:
    return SearchSpace((ParameterConfig("learning_rate", ParameterType.DOUBLE, low, high, Scale.LOG),))


def fake_facts(space: SearchSpace | None = None) -> WorkloadInfo:
    return WorkloadInfo(
        name=WorkloadName("fake", "model", "sgd"),
        metrics={"error": False},
        num_train_examples=1000,
        defaults={"learning_rate": None, "momentum": 0.0},
        default_space=lambda _steps: space or fake_space(),
    )


def fake_experiment(**changes) -> Experiment:
    values = {
        "workload": WorkloadSpec(WorkloadName("fake", "model", "sgd")),
        "goal": Goal.parse("val/error < 0.2"),
        "batch_sizes": BatchSizes((1, 8)),
        "trials": 6,
        "budget": Budget(200, Unit.STEPS),
        "evaluation": EvaluationPlan(every=10),
        "stop": StopRule.RACE,
        "search": SearchPlan(repeats=0),
    }
    return Experiment(**(values | changes))


def fake_study(batch_size: int = 1, **changes) -> Study:
    plan = make_plan(fake_experiment(batch_sizes=BatchSizes((batch_size,)), **changes), fake_facts())
    return plan.studies[0]


def fake_setup(**options: object) -> Setup:
    return Setup(fake_experiment(), engine=FAKE_ENGINE, options={key: str(value) for key, value in options.items()})


def read_values(root: Path) -> dict[tuple[str, int], dict[str, object]]:
    """Every trial of a tree as plain values, without what may differ between runs (times, hardware)."""
    trials = {}
    for path in sorted(root.rglob("metadata.json")):
        if ".batchscale" in path.parts:
            continue
        metadata = json.loads(path.read_text())
        own = metadata.pop("batchscale")
        own.pop("timing", None)
        own.pop("hardware", None)
        own.pop(CHECKSUM_KEY, None)  # of the whole file, times included
        rows = (path.parent / "measurements.csv").read_text()
        study = str(path.parent.parent.relative_to(root))
        trials[study, int(path.parent.name)] = {**metadata, "own": own, "rows": rows}
    return trials


def read_studies(root: Path) -> dict[int, dict[str, object]]:
    """Every study.json of a tree by batch size."""
    studies = [json.loads(p.read_text()) for p in root.rglob("study.json") if ".batchscale" not in p.parts]
    return {study["batch_size"]: study for study in studies}


def run_fake(root: Path, runner: str = "inline", space: SearchSpace | None = None, stop=None, **changes):
    """An experiment on the fake engine; options of the engine are given as ``options``."""
    options = {key: str(value) for key, value in changes.pop("options", {}).items()}
    more, show = dict(changes.pop("settings", {})), changes.pop("show", lambda _status: None)
    if "rule" in changes:
        changes["stop"] = changes.pop("rule")
    plan = make_plan(fake_experiment(**changes), fake_facts(space))
    settings = RunSettings(runner, workers=more.pop("workers", 2), engine=FAKE_ENGINE, engine_options=options, **more)
    return run_plan(plan, root, settings, show, stop)
