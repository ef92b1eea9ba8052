"""Small workloads made by hand, so that the engine is tested against nothing but its interface."""

import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.experiment import StopRule
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Study
from batchscale.spec.space import SearchSpace
from batchscale.spec.workload_name import WorkloadName
from batchscale.training import study_engine
from batchscale.training.programs import Programs
from batchscale.training.study_engine import EngineSettings, StudyEngine
from batchscale.workloads.workload import ArraySplit, Dataset, LossSum, Metric, Model, Workload

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "fakes")]


def _mean(pair):
    return pair[0] / pair[1]


def _error(outputs, batch, weights):
    wrong = (jnp.argmax(outputs, -1) != batch["labels"]).astype(jnp.float32)
    return jnp.sum(wrong * weights), jnp.sum(weights)


def _cross_entropy(outputs, batch, weights):
    losses = optax.softmax_cross_entropy_with_integer_labels(outputs, batch["labels"])
    return jnp.sum(losses * weights), jnp.sum(weights)


def _loss(outputs, batch, metaparameters):
    losses = optax.softmax_cross_entropy_with_integer_labels(outputs, batch["labels"])
    return LossSum(jnp.sum(losses), jnp.float32(losses.shape[0]))


def make_toy_workload(num_examples: int = 40, features: int = 6, hidden: int = 8, classes: int = 3) -> Workload:
    """A small fully connected network on three noisy clusters."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(classes, features)) * 2

    def split(count):
        labels = rng.integers(0, classes, count).astype(np.int32)
        inputs = (centres[labels] + rng.normal(size=(count, features))).astype(np.float32)
        return ArraySplit({"inputs": inputs, "labels": labels})

    def init(key):
        first, second = jax.random.split(key)
        return {
            "w1": jax.random.normal(first, (features, hidden)) / np.sqrt(features),
            "b1": jnp.zeros(hidden),
            "w2": jax.random.normal(second, (hidden, classes)) / np.sqrt(hidden),
            "b2": jnp.zeros(classes),
        }, {}

    def apply(params, state, inputs, *, train, key):
        middle = jax.nn.relu(inputs @ params["w1"] + params["b1"])
        return middle @ params["w2"] + params["b2"], state

    return Workload(
        name=WorkloadName("toy", "fc", "momentum"),
        dataset=Dataset(
            "toy",
            {"train": split(num_examples), "val": split(25)},
            lambda batch: batch,
            (features,),
            np.float32,
            classes,
        ),
        model=Model("fc", init, apply),
        loss=_loss,
        metrics=(
            Metric("classification_error", False, _error, _mean),
            Metric("cross_entropy_error", False, _cross_entropy, _mean),
        ),
        defaults={"learning_rate": None, "momentum": 0.0},
        space=lambda steps: SearchSpace(),
        make_update=lambda mp: optax.chain(
            optax.trace(decay=mp["momentum"], nesterov=True), optax.scale(-mp["learning_rate"])
        ),
    )


def make_study(workload: Workload, batch_size: int = 7, train_steps: int = 40, every: int = 10) -> Study:
    return Study(
        workload=workload.name,
        batch_size=batch_size,
        train_steps=train_steps,
        evaluation_steps=EvaluationPlan(every=every).steps(train_steps),
        space=SearchSpace(),
        fixed={},
        trials=4,
        max_attempts=40,
        goal=Goal.parse("val/classification_error < 0.1"),
        stop=StopRule.BUDGET,
        seed=0,
    )


_COMPILED: dict[str, tuple[Workload, Programs]] = {}


def find_programs(workload: Workload, study: Study, plan: EvaluationPlan, settings: EngineSettings) -> Programs:
    """The programs of a study: those of an earlier engine where that one's would be the same."""
    protocol = (study.half_lives, study.branches, study.goal)
    parts = (study.batch_size, study.space.names, sorted(study.fixed), plan, protocol)
    parts += (replace(settings, checkpoint_dir=None),)
    key = f"{id(workload)} {parts}"
    if settings.population is None:
        return Programs(workload, study, plan, settings)
    if key not in _COMPILED:
        made = Programs(workload, study, plan, settings)
        if made._feed is not None:  # it knows where its trials are
            return made
        _COMPILED[key] = workload, made  # the workload is kept, and with it its id
    return copy.copy(_COMPILED[key][1])


@pytest.fixture(scope="module")
def shared_programs() -> Iterator[None]:
    """Engines of a module share what they compile: for tests of states and measurements, not of compilation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_engine, "Programs", find_programs)
        yield
        _COMPILED.clear()


@pytest.fixture(scope="session")
def toy() -> Workload:
    return make_toy_workload()


@pytest.fixture
def toy_of() -> Callable[..., Workload]:
    return make_toy_workload


@pytest.fixture
def study_of() -> Callable[..., Study]:
    return make_study


@pytest.fixture(scope="module")
def study_of_module() -> Callable[..., Study]:
    return make_study


@pytest.fixture
def engine_of(tmp_path: Path) -> Callable[..., StudyEngine]:
    """Makes an engine; evaluates all of train and val."""

    def make(workload: Workload, study: Study | None = None, **settings) -> StudyEngine:
        settings = {"population": 1} | settings
        examples = dict.fromkeys(workload.dataset.splits, "all")
        return StudyEngine(
            workload, study or make_study(workload), EvaluationPlan(examples=examples), EngineSettings(**settings)
        )

    return make
