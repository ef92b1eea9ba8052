import pytest

from batchscale.errors import RunError
from batchscale.spec.experiment import StopRule
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Study
from batchscale.spec.space import ParameterConfig, ParameterType, Scale, SearchSpace
from batchscale.spec.workload_name import WorkloadName
from batchscale.study.trial import TrialTask
from batchscale.workers.multihost.runner import CALLS
from batchscale.workers.runner import Job

SPACE = SearchSpace(
    (
        ParameterConfig("learning_rate", ParameterType.DOUBLE, 1e-3, 1, Scale.LOG),
        ParameterConfig("label_smoothing", ParameterType.DISCRETE, feasible_points=(0.0, 0.1)),
    )
)
STUDY = Study(
    workload=WorkloadName("groups/tiny", "net", "sgd"),
    batch_size=8,
    train_steps=100,
    evaluation_steps=(0, 50, 100),
    space=SPACE,
    fixed={"momentum": 0.9},
    trials=3,
    max_attempts=5,
    goal=Goal.parse("val/error < 0.1"),
    stop=StopRule.RACE,
    seed=7,
)
TASK = TrialTask(1, {"learning_rate": 0.1234567890123456}, 2**40, 50, -1)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("run", (Job(3, STUDY, (TASK,), STUDY.goal, 2),)),
        ("run", (Job(4, STUDY, (TASK, TASK)),)),
        ("discard", (8, (1, 2))),
        ("finish", (8, {1: 50})),
        ("close", ()),
    ],
)
def test_a_call_of_the_chief_is_decoded_as_it_was_encoded(call, arguments):
    heard = CALLS.decode(CALLS.encode(call, arguments))
    assert repr(heard) == repr((call, arguments))  # by text: a range without an end is NaN, which equals nothing


@pytest.mark.parametrize(
    "message", [b"", b"{}", b"[]", b'["exec", []]', b'["run", [1]]', b'["discard", ["x", []]]', b"\x80\x04N."]
)
def test_anything_else_is_refused_in_words(message):
    with pytest.raises(RunError, match="same version of batchscale on all hosts"):
        CALLS.decode(message)
