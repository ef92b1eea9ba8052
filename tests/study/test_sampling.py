"""The numbers that every run and every resumed run must draw alike: a promise to all who resume."""

import pytest

from batchscale.spec.experiment import Algorithm
from batchscale.spec.file import parse_experiment
from batchscale.spec.plan import WorkloadInfo, derive_seed, make_plan
from batchscale.spec.space import SearchSpace
from batchscale.study.sampling import PointStream, trial_seed

EXPERIMENT = """
goal = "val/loss < 1"
batch_sizes = [1, 64]
trials = 4
seed = 7
[workload]
dataset = "digits"
model = "fc_64"
optimizer = "nesterov_momentum"
[budget]
steps = 100
[search.space]
learning_rate = { scale = "LOG_SCALE", min_value = 1e-4, max_value = 10.0 }
momentum = { scale = "REVERSE_LOG_SCALE", min_value = 0.9, max_value = 0.9999 }
"""
# learning rate and momentum of the first two points, by batch size, search and sequence
POINTS = {
    (1, 1, Algorithm.HALTON): [(0.1605161837643993, 0.9995159287452198), (0.0005075967420136426, 0.9951592874521975)],
    (1, 1, Algorithm.SOBOL): [(0.2348898027248659, 0.9996376151533182), (0.0006959069736222754, 0.9665810068158012)],
    (1, 2, Algorithm.HALTON): [(5.41092276281397, 0.9907659006998899), (0.017110840173743185, 0.907659006998895)],
    (64, 1, Algorithm.HALTON): [(0.00027852980507231357, 0.9683083954958882), (0.08807885802712298, 0.996830839549589)],
    (64, 2, Algorithm.SOBOL): [(0.09643783760232123, 0.9450127527849839), (0.001257030362626813, 0.9998900835778921)],
}


def studies(text: str = EXPERIMENT):
    experiment = parse_experiment(text)
    facts = WorkloadInfo(
        name=experiment.workload.name,
        metrics={"loss": False},
        num_train_examples=1000,
        defaults={"learning_rate": None, "momentum": None},
        default_space=lambda steps: SearchSpace(),
    )
    return {study.batch_size: study for study in make_plan(experiment, facts).studies}


def test_a_seed_is_this_number():
    assert derive_seed(0, "digits/fc_64/sgd", 64) == 10737545
    assert derive_seed(7, "trial", 1, 0) == 36800746
    assert derive_seed() == 1954132660


def test_parts_of_another_type_or_cut_give_another_seed():
    assert (
        len({derive_seed("1", "2"), derive_seed(1, 2), derive_seed("12"), derive_seed(12), derive_seed("2", "1")}) == 5
    )


def test_studies_have_these_seeds():
    assert {size: study.seed for size, study in studies().items()} == {1: 1075288718, 64: 851769411}


def test_a_paired_design_has_one_seed_for_all_its_studies():
    seeds = {
        study.seed
        for study in studies(EXPERIMENT.replace("[search.space]", "[search]\npaired = true\n[search.space]")).values()
    }
    assert seeds == {derive_seed(7, "digits/fc_64/nesterov_momentum", 0)}


def test_trials_have_these_seeds():
    study = studies()[64]
    assert [trial_seed(study, 1, point) for point in range(3)] == [688391216, 1041456511, 308713135]
    assert trial_seed(study, 2, 0) == 1825780338


@pytest.mark.parametrize(("size", "search", "algorithm"), POINTS)
def test_the_first_points_of_a_study_are_these(size, search, algorithm):
    study = studies()[size]
    drawn = PointStream(study, search, study.space, algorithm).draw(0, 2)
    # A unit coordinate is exact; the power that makes a value of it may differ in its last bits on another machine.
    for point, (learning_rate, momentum) in zip(drawn, POINTS[size, search, algorithm], strict=True):
        assert point == {
            "learning_rate": pytest.approx(learning_rate, rel=1e-12),
            "momentum": pytest.approx(momentum, rel=1e-12),
        }
