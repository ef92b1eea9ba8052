"""Which worker trains what next."""

from protocol_fakes import fake_experiment, fake_study

from batchscale.driver.dispatch import Dispatch
from batchscale.protocol.resuming import open_study_run
from batchscale.spec import Budget, EvaluationPlan, StopRule, Unit


def test_the_first_job_of_a_study_goes_to_the_next_measurement_only(tmp_path):
    long = {"stop": StopRule.BUDGET, "budget": Budget(10**6, Unit.STEPS), "evaluation": EvaluationPlan(every=1000)}
    run = open_study_run(tmp_path, fake_study(**long), fake_experiment(**long))
    choice = Dispatch([run.state]).choose("one", workers=2)
    assert {need.until for need in choice.needs} == {1000}
    run.close()
