"""A half-life in a trial's metaparameters trains as its factor does, at every batch size."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from batchscale.errors import SpecError
from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.workload_name import WorkloadName
from batchscale.training.study_engine import TrialTask
from batchscale.workloads.registry import get_workload

STEPS, TOKENS = 5, 16


@pytest.fixture(scope="module")
def workload():
    made = get_workload(WorkloadSpec(WorkloadName.parse("noisy_quadratic/quadratic/adam")))
    return replace(made, dataset=replace(made.dataset, tokens_per_example=TOKENS))


def final_state(engine, **parameters):
    engine.advance([TrialTask(1, {"learning_rate": 0.1, **parameters}, seed=3, until_step=STEPS)])
    return jax.tree.leaves(engine._population.member(1))


@pytest.mark.usefixtures("shared_programs")
def test_a_half_life_gives_the_bits_of_its_factor(workload, engine_of, study_of):
    def state(batch_size, **parameters):
        return final_state(
            engine_of(workload, study_of(workload, batch_size=batch_size, train_steps=STEPS)), **parameters
        )

    # 4 examples of 16 tokens: 64 tokens a step, so a half-life of 128 is two steps
    found, expected = state(4, beta2_half_life=128.0), state(4, beta2=0.5**0.5)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    twice = state(8, beta2_half_life=128.0)
    assert any(np.asarray(leaf).size == 1 and float(np.asarray(leaf).ravel()[0]) == 0.5 for leaf in twice)


def test_an_optimizer_without_the_factor_refuses_its_half_life(workload, engine_of, study_of):
    engine = engine_of(workload, study_of(workload, batch_size=4, train_steps=STEPS))
    with pytest.raises(SpecError, match="no metaparameter 'momentum'"):
        final_state(engine, momentum_half_life=10.0)
