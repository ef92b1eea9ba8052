"""Experiment files with "auto": their aim, their batch sizes, and what is refused."""

from pathlib import Path

import pytest

from batchscale.errors import SpecError
from batchscale.spec.adaptive import AdaptivePlan, Aim, CostUnit
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.file import parse_experiment
from batchscale.spec.plan import WorkloadInfo, make_plan
from batchscale.spec.space import ParameterConfig, ParameterType, Scale, SearchSpace
from batchscale.spec.workload_name import WorkloadName

HEAD = 'workload = "digits/fc_64/sgd"\ngoal = "val/loss < 0.2"\n'
AUTO = 'batch_sizes = "auto"\ntrials = "auto"\n'


def plan_of(text, examples=1000):
    space = SearchSpace((ParameterConfig("learning_rate", ParameterType.DOUBLE, 0.01, 1.0, Scale.LOG),))
    name = WorkloadName("digits", "fc_64", "sgd")
    info = WorkloadInfo(name, {"loss": False}, examples, {"learning_rate": None}, lambda _steps: space)
    return make_plan(parse_experiment(HEAD + text), info)


def test_auto_alone_has_an_aim_and_all_doublings_to_choose_from():
    plan = plan_of(AUTO)
    assert plan.experiment.adaptive == AdaptivePlan()
    assert plan.experiment.finishers == 2  # of eight trials; four from 16 on
    assert plan_of(f"finishers = 3\n{AUTO}").experiment.finishers == 3
    assert [study.batch_size for study in plan.studies] == [2**power for power in range(10)]
    assert {study.trials for study in plan.studies} == {8}


def test_the_aim_is_read_with_its_bounds_and_its_budget():
    text = (
        f'{AUTO}[adaptive]\nquantity = "optimal_batch_size"\nfactor = 1.5\nsmallest = 3\nlargest = 50\nmax_hours = 2\n'
    )
    adaptive = plan_of(text).experiment.adaptive
    assert (adaptive.aim, adaptive.factor, adaptive.unit, adaptive.budget) == (Aim.OPTIMAL, 1.5, CostUnit.SECONDS, 7200)
    assert [study.batch_size for study in plan_of(text).studies] == [3, 6, 12, 24, 48]
    assert "the optimal batch size within a factor of 1.5, at most 2 hours of training" in str(adaptive)


def test_one_of_both_may_be_fixed():
    sizes = plan_of('batch_sizes = "auto"\ntrials = 20\n').experiment.adaptive
    assert (sizes.chooses_sizes, sizes.chooses_trials) == (True, False)
    assert (sizes.first_trials, sizes.most_trials) == (20, 20)
    trials = plan_of('batch_sizes = [4, 16, 64]\ntrials = "auto"\n')
    assert [study.batch_size for study in trials.studies] == [4, 16, 64]
    assert not trials.experiment.adaptive.chooses_sizes
    assert plan_of("batch_sizes = [4]\ntrials = 5\n").experiment.adaptive is None


def test_a_list_with_auto_alone_is_auto_as_a_form_writes_it():
    assert BatchSizes.parse(["auto"]) == BatchSizes.parse("auto")
    assert BatchSizes.parse("auto").to_json() == ["auto"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('batch_sizes = ["auto", 8]\n', '"auto" must stand alone. Found 2 items'),
        ("[adaptive]\nfactor = 2\n", 'is for batch_sizes = "auto" or trials = "auto". Found neither'),
        (f"{AUTO}[adaptive]\nfactor = 1\n", "key 'adaptive.factor' should be greater than 1. Found 1"),
        (f'{AUTO}[adaptive]\nquantity = "speed"\n', "key 'adaptive.quantity' should be 'critical_batch_size'"),
        (f"{AUTO}[adaptive]\nfactors = 2\n", "unknown key 'adaptive.factors'"),
        (f"{AUTO}[adaptive]\nsmallest = 8\nlargest = 16\n", "'largest' must be at least four times 'smallest'"),
        (f"{AUTO}[adaptive]\nmax_hours = 1\nmax_examples = 10\n", "Found max_examples and max_hours"),
        (f"{AUTO}[adaptive]\nfirst_trials = 9\nmost_trials = 5\n", "'first_trials' must not exceed 'most_trials'"),
        (f"finishers = 9\n{AUTO}", "must not exceed adaptive.first_trials = 8. Found 9"),
        ('trials = "auto"\n[adaptive]\nlargest = 64\n', "'largest' is for batch_sizes = \"auto\""),
        ('batch_sizes = "auto"\n[adaptive]\nmost_trials = 64\n', "'most_trials' is for trials = \"auto\""),
        ('trials = "many"\n', "key 'trials'"),
        (
            f'{AUTO}[adaptive]\nquantity = "cheapest_configuration"\nmachines = "m.toml"\n',
            "needs the time of a step on the machines: 'step_times', a file of 'batchscale calibrate', or 'work'",
        ),
        (f'{AUTO}[adaptive]\nwork = "w.csv"\n', "'work' is for quantity = 'fastest_configuration' or"),
        (
            f'{AUTO}[adaptive]\nquantity = "fastest_configuration"\nstep_times = "a\\u0000b"\n',
            "a file must be the path of a file in printable characters",
        ),
        (f"{AUTO}[adaptive]\nstep_times = 3\n", "key 'adaptive.step_times'"),
        ('batch_sizes = [4, 8]\ntrials = "auto"\n', 'trials = "auto" needs at least 3 batch sizes'),
        (f"{AUTO}[search]\nmax_attempts = 50\n", "search.max_attempts must be at least adaptive.most_trials"),
        (f"{AUTO}[adaptive]\nlargest = 2000\n", "adaptive.largest must not exceed the training set of 1000 examples"),
        (
            f"{AUTO}[adaptive]\nsmallest = 600\n",
            "needs at least 3 sizes, each twice the one before. Found 600 to 1,000",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_rule(text, message):
    with pytest.raises(SpecError) as error:
        plan_of(text)
    assert message in str(error.value)


def test_files_of_a_decision_are_relative_to_the_experiment_and_its_factor_is_smaller():
    text = f'{AUTO}[adaptive]\nquantity = "fastest_configuration"\nstep_times = "t.csv"\nmachines = "../m.toml"\n'
    adaptive = parse_experiment(HEAD + text, folder=Path("/experiments")).adaptive
    assert (adaptive.factor, adaptive.machines) == (1.1, Path("/experiments/../m.toml"))
    assert adaptive.step_times == (Path("/experiments/t.csv"),)
    several = text.replace('"t.csv"', '["a.csv", "b.csv"]')
    assert len(parse_experiment(HEAD + several).adaptive.step_times) == 2


def test_data_without_an_end_needs_a_largest_size():
    budget = "[budget]\nsteps = 100\n"
    with pytest.raises(SpecError, match="needs a largest size where the training set has none"):
        plan_of(AUTO + budget, None)
    assert len(plan_of(f"{AUTO}[adaptive]\nlargest = 64\n{budget}", None).studies) == 7
