"""The closed form beside a measured curve: what the noisy quadratic model's steps to result would be on average."""

from collections.abc import Mapping
from pathlib import Path

from batchscale.spec.plan import Plan


def expected_steps(root: Path, plan: Plan) -> Mapping[int, int]:
    """Per batch size the fewest evaluated steps after which the expected loss of one of its trials passes the goal.

    Over the same trials and evaluation steps as the records, so that only the luck of single trials differs.
    """
    from batchscale.records.tree.read import read_tree
    from batchscale.workloads.noisy_quadratic import UpdateRule, closed_form_steps_to_loss, parse_problem

    spec = plan.experiment.workload
    problem = parse_problem(spec.dataset_options)
    trials = read_tree(root).workload(spec.name).trials
    expected = {}
    for study in plan.studies:
        found: list[int] = []
        for row in trials.filter(batch_size=study.batch_size, status="COMPLETE").to_dicts():
            rule = UpdateRule(spec.name.optimizer, row["learning_rate"], row.get("momentum") or 0.0)
            limit = min(found, default=study.train_steps)
            step = closed_form_steps_to_loss(problem, rule, study.batch_size, study.goal.value, limit)
            if step is not None:
                found.append(next(s for s in study.evaluation_steps if s >= step))
        if found:
            expected[study.batch_size] = min(found)
    return expected
