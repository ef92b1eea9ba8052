"""Planning: from a curve, step times and prices to the machines, by time and by money. Pure; trains nothing.

The public names are loaded on first use. Inside batchscale, import from the modules.
"""

from typing import TYPE_CHECKING

from batchscale.lazy_imports import load_lazily

if TYPE_CHECKING:
    from batchscale.planning.assemble import plan_records as plan_records
    from batchscale.planning.curve import PlanCurve as PlanCurve
    from batchscale.planning.evaluation import RunCosts as RunCosts
    from batchscale.planning.machines import Machine as Machine
    from batchscale.planning.machines import read_machines as read_machines
    from batchscale.planning.plan import PlanRequest as PlanRequest
    from batchscale.planning.plan import make_plan as make_plan
    from batchscale.planning.read_curve import analysis_curve as analysis_curve
    from batchscale.planning.step_model import fit_step_model as fit_step_model
    from batchscale.planning.step_times import StepTime as StepTime
    from batchscale.planning.step_times import read_step_times as read_step_times

_PUBLIC = {
    "PlanCurve": "curve",
    "Machine": "machines",
    "PlanRequest": "plan",
    "RunCosts": "evaluation",
    "StepTime": "step_times",
    "analysis_curve": "read_curve",
    "fit_step_model": "step_model",
    "make_plan": "plan",
    "plan_records": "assemble",
    "read_machines": "machines",
    "read_step_times": "step_times",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = load_lazily(__name__, _PUBLIC)
