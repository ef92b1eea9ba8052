"""Asking a finished run for more: real training, through worker processes, repeats nothing."""

import json
from pathlib import Path

import pytest
from study_fakes import read_values

from batchscale.run.preflight import make_checked_plan
from batchscale.run.session import RunSettings, run_plan
from batchscale.spec.file import parse_experiment
from batchscale.spec.plan import Study
from batchscale.workers import training_engine
from batchscale.workers.runner import Setup

EXPERIMENT = """
goal = "val/cross_entropy_error < 0.0001"
batch_sizes = [16]
trials = 3
stop = "{stop}"
finishers = {finishers}

[workload]
dataset = "digits"
model = "fc_8"
optimizer = "momentum"

[budget]
steps = {steps}
[evaluation]
every = 10
examples = {{ train = 100, val = 100, test = 0 }}
[search]
repeats = 0
[search.space]
learning_rate = {{ type = "DOUBLE", scale = "LOG_SCALE", min_value = 1e-2, max_value = 1e-1 }}
[search.fixed]
momentum = 0.9
"""


def counting_engine(setup: Setup, study: Study, population: int | None):
    """The real engine, which writes down every trial that it begins from its seed."""
    engine = training_engine.make_engine(setup, study, population)
    init = engine._programs.init

    def begin(*args):
        with Path(setup.options["begun"]).open("a") as file:
            file.write(f"{study.batch_size}\n")
        return init(*args)

    engine._programs.init = begin
    return engine


def run_counted(root: Path, runner: str = "inline", keep_states_gb: float = 1.0, **values) -> int:
    """Runs the experiment; how many trials were begun from their seed."""
    begun = root.parent / f"begun-{len(list(root.parent.iterdir()))}"
    text = EXPERIMENT.format(**({"stop": "budget", "finishers": 1} | values))
    settings = RunSettings(
        runner,
        workers=1,
        engine="test_extending:counting_engine",
        engine_options={"begun": str(begun)},
        keep_states_gb=keep_states_gb,
    )
    run_plan(make_checked_plan(parse_experiment(text), None), root, settings)
    return len(begun.read_text().splitlines()) if begun.exists() else 0


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """The records of a run that had the larger budget from its start."""
    root = tmp_path_factory.mktemp("fresh") / "tree"
    run_counted(root, steps=40)
    return read_values(root)


@pytest.mark.parametrize("runner", ["inline", "local"])
def test_a_larger_step_budget_repeats_no_step(tmp_path, runner, fresh):
    assert run_counted(tmp_path / "tree", runner, steps=20) == 3
    assert run_counted(tmp_path / "tree", runner, steps=40) == 0
    extended = read_values(tmp_path / "tree")
    assert {t["steps"] for t in extended.values()} == {40}
    assert extended == fresh
    study = json.loads(next((tmp_path / "tree").rglob("study.json")).read_text())
    assert (study["train_steps"], study["batchscale"]["budgets"]) == (40, [20, 40])


def test_without_kept_states_the_records_are_the_same(tmp_path, fresh):
    assert run_counted(tmp_path / "tree", steps=20, keep_states_gb=0) == 3
    assert list((tmp_path / "tree" / ".batchscale").rglob("*.npz")) == []
    assert run_counted(tmp_path / "tree", steps=40, keep_states_gb=0) == 3
    assert read_values(tmp_path / "tree") == fresh


def test_a_state_that_was_damaged_is_trained_again_to_the_same_records(tmp_path, fresh):
    run_counted(tmp_path / "tree", steps=20)
    damaged, lost, *_ = sorted((tmp_path / "tree" / ".batchscale").rglob("*.npz"))
    damaged.write_bytes(damaged.read_bytes()[:-100])
    lost.unlink()
    assert run_counted(tmp_path / "tree", steps=40) == 2
    assert read_values(tmp_path / "tree") == fresh
