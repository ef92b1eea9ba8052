"""Small values for tests of the protocol: an experiment on the fake engine, its facts and studies."""

from batchscale.runners.runner import Setup
from batchscale.spec import (
    BatchSizes,
    Budget,
    EvaluationPlan,
    Experiment,
    Goal,
    ParameterConfig,
    ParameterType,
    Scale,
    SearchPlan,
    SearchSpace,
    StopRule,
    Study,
    Unit,
    WorkloadFacts,
    WorkloadName,
    WorkloadSpec,
    make_plan,
)

FAKE_ENGINE = "fake_engine:make_engine"


def fake_space(low: float = 0.001, high: float = 0.5) -> SearchSpace:
    return SearchSpace((ParameterConfig("learning_rate", ParameterType.DOUBLE, low, high, Scale.LOG),))


def fake_facts(space: SearchSpace | None = None) -> WorkloadFacts:
    return WorkloadFacts(
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
