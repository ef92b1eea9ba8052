import dataclasses

import pytest

from batchscale.errors import SpecError
from batchscale.spec.file import parse_experiment
from batchscale.spec.plan import WorkloadInfo, make_plan
from batchscale.spec.space import ParameterConfig, ParameterType, Scale, SearchSpace

BASE = """
goal = "val/classification_error < 0.1"
batch_sizes = [4, 16, "full"]
trials = 10
{top}
[workload]
dataset = "digits"
model = "fc_64"
optimizer = "momentum"
[budget]
epochs = 2
{rest}
"""


def space(train_steps):
    return SearchSpace(
        (
            ParameterConfig("learning_rate", ParameterType.DOUBLE, 1e-3, 10, Scale.LOG),
            ParameterConfig("momentum", ParameterType.DOUBLE, 0, 0.999, Scale.REVERSE_LOG),
            ParameterConfig("learning_rate_decay_steps", ParameterType.INTEGER, train_steps // 2, train_steps),
        )
    )


def plan(top="", rest="", **changes):
    experiment = parse_experiment(BASE.format(top=top, rest=rest))
    facts = WorkloadInfo(
        name=experiment.workload.name,
        metrics={"classification_error": False, "average_precision": True},
        num_train_examples=1000,
        defaults={"learning_rate": None, "momentum": None, "learning_rate_decay_steps": None, "label_smoothing": 0.0},
        default_space=space,
    )
    return make_plan(experiment, dataclasses.replace(facts, **changes))


def test_a_plan_has_one_study_per_batch_size_with_everything_in_steps():
    studies = plan().studies
    assert [(study.batch_size, study.train_steps) for study in studies] == [(4, 500), (16, 125), (1000, 2)]
    assert all(study.evaluation_steps[-1] == study.train_steps for study in studies)
    assert plan().trial_steps == 10 * (500 + 125 + 2)
    assert plan().trial_examples == 10 * (500 * 4 + 125 * 16 + 2 * 1000)


def test_ranges_of_the_file_replace_defaults_and_fixed_ones_leave_the_space():
    studies = plan(
        rest="""[search]
        fixed = { momentum = 0.9 }
        space.learning_rate = { scale = "LOG_SCALE", min_value = 0.1, max_value = 1 }
        per_batch_size.16.learning_rate = { scale = "LOG_SCALE", min_value = 0.5, max_value = 2 }"""
    ).studies
    assert studies[0].space.names == ("learning_rate", "learning_rate_decay_steps")
    assert studies[0].fixed == {"momentum": 0.9}
    assert [study.space["learning_rate"].max_value for study in studies] == [1, 2, 1]
    assert studies[1].space["learning_rate_decay_steps"].max_value == 125


def test_studies_have_their_own_streams_unless_paired():
    assert len({study.seed for study in plan().studies}) == 3
    assert len({study.seed for study in plan(rest="[search]\npaired = true").studies}) == 1


@pytest.mark.parametrize(
    ("top", "rest", "changes", "message"),
    [
        ("", "", {"num_train_examples": 10}, "training set of 10 examples. Found 16"),
        ("", "", {"metrics": {"loss": False}}, "goal: the metric must be one that workload .* reports"),
        ("", "", {"metrics": {"classification_error": True}}, "to be maximised, so the goal needs '>'"),
        ("", "", {"splits": ("train",)}, "goal: the metric must be one"),
        ('metrics = ["eror"]', "", {}, "does not report 'eror'"),
        ('metrics = ["average_precision"]', "", {}, "metrics: the goal's metric 'classification_error'"),
        ("evaluation.examples.val = 0", "", {}, "evaluation.examples.val must not be 0"),
        ("", "per_batch_size = { 5 = 1 }", {}, "must name batch sizes.*Found 5"),
        ("", "[search]\nfixed = { moment = 0.5 }", {}, "no metaparameter 'moment'; did you mean 'momentum'"),
        ("", "[search]\nfixed = { momentum = 1.0 }", {}, r"'momentum' must stay within \[0, 1\).*in search.fixed"),
        ("", "", {"default_space": lambda _: SearchSpace()}, "has no default; give it a range or a fixed value"),
    ],
)
def test_what_does_not_fit_the_workload_is_refused(top, rest, changes, message):
    with pytest.raises(SpecError, match=message):
        plan(top, rest, **changes)


def test_a_metaparameter_that_is_fixed_is_not_given_a_range_as_well():
    both = """[search]
    fixed = { momentum = 0.9 }
    space.momentum = { min_value = 0.1, max_value = 0.9 }"""
    with pytest.raises(SpecError, match=r"A metaparameter must be either searched or fixed. Found 'momentum'"):
        plan(rest=both)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("budget", "evaluation", "message"),
    [
        (
            "steps = 1000000000",
            "every = 1",
            "at most 100,000 measurements. Found .*every = 1, which makes 1,000,000,000",
        ),
        ("steps = 10000000", "every = 1", "at most 100,000 measurements"),
        ("epochs = 0.001", "every = 10", "at most 100,000 measurements"),
        ("steps = 100000000", "count = 100000", "at every batch size must have at most 2,000,000 measurements"),
    ],
)
def test_measurements_that_no_plan_can_hold_are_refused_at_once(budget, evaluation, message):
    text = BASE.replace("epochs = 2", budget).replace('[4, 16, "full"]', '"1..1000000000"')
    experiment = parse_experiment(text.format(top="", rest=f"[evaluation]\n{evaluation}"))
    facts = WorkloadInfo(
        name=experiment.workload.name,
        metrics={"classification_error": False},
        num_train_examples=2**40,
        defaults={"learning_rate": None},
        default_space=lambda _: SearchSpace((ParameterConfig("learning_rate", ParameterType.DOUBLE, 0.1, 1),)),
    )
    with pytest.raises(SpecError, match=message):
        make_plan(experiment, facts)


def test_a_half_life_takes_the_place_of_its_factor():
    half_life = "momentum_half_life = { scale = 'LOG_SCALE', min_value = 10, max_value = 1000 }"
    studies = plan(rest=f"[search.space]\n{half_life}").studies
    assert all(
        study.space.names == ("learning_rate", "learning_rate_decay_steps", "momentum_half_life") for study in studies
    )
    fixed = plan(rest="[search.fixed]\nmomentum_half_life = 64.0").studies[0]
    assert fixed.space.names == ("learning_rate", "learning_rate_decay_steps")
    with pytest.raises(SpecError, match="same metaparameter in two units"):
        plan(rest=f"[search.fixed]\nmomentum = 0.9\n[search.space]\n{half_life}")
    with pytest.raises(SpecError, match="no metaparameter 'beta2_half_life'"):
        plan(rest="[search.fixed]\nbeta2_half_life = 64.0")
    with pytest.raises(SpecError, match="must stay within"):
        plan(rest="[search.fixed]\nmomentum_half_life = 0.0")
