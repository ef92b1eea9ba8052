"""The noisy quadratic through the whole engine, against its closed form."""

import numpy as np
import pytest

from batchscale.errors import SpecError
from batchscale.noisy_quadratic import NoisyQuadratic, UpdateRule, closed_form_loss
from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.workload_name import WorkloadName
from batchscale.training.study_engine import TrialTask
from batchscale.workloads.registry import get_workload

TRIALS = 256


@pytest.mark.parametrize(("optimizer", "momentum"), [("sgd", None), ("momentum", 0.8)])
@pytest.mark.parametrize("batch_size", [1, pytest.param(8, marks=pytest.mark.slow), 64, 2**17, 2**40])
def test_the_mean_loss_follows_the_closed_form(optimizer, momentum, batch_size, study_of, engine_of):
    options = {"dimension": 20}
    workload = get_workload(
        WorkloadSpec(WorkloadName("noisy_quadratic", "quadratic", optimizer), dataset_options=options)
    )
    study = study_of(workload, batch_size=batch_size, train_steps=60, every=15)
    parameters = {"learning_rate": 0.1} | ({} if momentum is None else {"momentum": momentum})
    tasks = [TrialTask(i, parameters, seed=1000 + i, until_step=60, from_step=-1) for i in range(1, TRIALS + 1)]
    found = engine_of(workload, study, population=64).advance(tasks)
    metric = f"val/{workload.metrics[0].name}"
    expected = closed_form_loss(NoisyQuadratic(**options), UpdateRule(optimizer, 0.1, momentum or 0.0), batch_size, 60)
    for place, step in enumerate((0, 15, 30, 45, 60)):
        losses = np.array([progress.rows[place][1][metric] for progress in found])
        error = max(losses.std(ddof=1) / np.sqrt(TRIALS), 1e-6 * expected[step])
        assert abs(losses.mean() - expected[step]) < 4.5 * error, (step, losses.mean(), expected[step], error)


def test_a_batch_that_is_sampled_as_a_whole_is_not_split(study_of, engine_of):
    workload = get_workload(WorkloadSpec(WorkloadName("noisy_quadratic", "quadratic", "sgd")))
    with pytest.raises(SpecError, match="samples a batch as a whole"):
        engine_of(workload, study_of(workload, batch_size=8, train_steps=2, every=1), microbatch=4)
