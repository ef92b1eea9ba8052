"""The configurations that an adaptive experiment decides between, from files of machines, step times and work.

Rules and numbers are those of `batchscale plan`. Its time and its cost of a configuration are straight lines in the
steps to result, so that two evaluations give both parts of each line.
"""

import numpy as np
import polars as pl

from batchscale.planning.assemble import PlanInputs, assemble_plan
from batchscale.planning.candidates import CANDIDATE_SCHEMA
from batchscale.planning.curve import CurvePoint, PlanCurve
from batchscale.planning.estimate import EstimateInputs
from batchscale.planning.evaluation import evaluate
from batchscale.planning.machines import read_machines
from batchscale.planning.sentences import place_text
from batchscale.planning.step_times import read_step_times
from batchscale.planning.work import read_work
from batchscale.prediction.decision import Configuration, DecisionQuestion
from batchscale.spec.adaptive import Aim
from batchscale.spec.plan import Plan

_STEPS = 1000.0  # any number: what is read from it are the parts of a line
_ORDER = ("machine", "hosts", "batch_size")


def read_configurations(plan: Plan) -> DecisionQuestion:
    """Return the configurations at the batch sizes of a plan; those that are never the best are left out.

    Raises:
        PlanningError: a file cannot be read, or no configuration can be used.
    """
    adaptive = plan.experiment.adaptive
    assert adaptive is not None
    name = str(plan.experiment.workload.name)
    points = tuple(CurvePoint(study.batch_size, _STEPS, predicted=True) for study in plan.studies)
    inputs = PlanInputs(
        PlanCurve(points, workload=name),
        step_times=tuple(time for file in adaptive.step_times for time in read_step_times(file)),
        machines=None if adaptive.machines is None else read_machines(adaptive.machines),
        estimate=None if adaptive.work is None else EstimateInputs(read_work(adaptive.work, name)),
    )
    planned = assemble_plan(inputs)
    table = planned.table.sort(*_ORDER)
    doubled, _ = evaluate(
        table.select(*CANDIDATE_SCHEMA, "tokens_per_example").with_columns(pl.col("steps") * 2), planned.request.costs
    )
    column = "expected_time_s" if adaptive.aim is Aim.FASTEST_CONFIGURATION else "expected_cost"
    once, twice = (frame.sort(*_ORDER)[column].to_numpy() for frame in (table, doubled))
    per_step, fixed = (twice - once) / _STEPS, np.maximum(2 * once - twice, 0.0)
    rows = table.with_columns(pl.Series("per_step", per_step), pl.Series("fixed", fixed)).sort(
        "batch_size", "per_step", "fixed", *_ORDER
    )
    configurations: list[Configuration] = []
    for row in rows.iter_rows(named=True):
        last = configurations[-1] if configurations else None
        # Sorted by the cost of a step, only a smaller fixed part can still win at the same batch size.
        if last is None or last.batch_size != row["batch_size"] or row["fixed"] < last.fixed * (1 - 1e-9):
            configurations.append(Configuration(place_text(row), row["batch_size"], row["fixed"], row["per_step"]))
    return DecisionQuestion(adaptive.aim, tuple(configurations), planned.unit, notices=planned.notices)
