"""Planning: from a curve, step times and prices to the machines, by time and by money. Pure; trains nothing."""

from batchscale.planning.answers import Answers, find_answers
from batchscale.planning.candidates import CANDIDATE_SCHEMA
from batchscale.planning.curve import Curve, CurvePoint, add_batch_sizes
from batchscale.planning.curve_input import analysis_curve, read_analysis_json, read_curve_csv
from batchscale.planning.evaluation import PLAN_SCHEMA, RunCosts, evaluate
from batchscale.planning.machines import Machine, read_machines
from batchscale.planning.of_records import plan_records, step_models_of_records
from batchscale.planning.plan import MachinePlan, SearchCost, Wishes, make_plan, plan_from_runs
from batchscale.planning.price_list import read_price_list
from batchscale.planning.runs import FinishedRun, Runs, read_runs, runs_curve, runs_step_times
from batchscale.planning.step_model import StepModel, fit_step_model
from batchscale.planning.step_times import StepTime, read_step_times, records_step_times
from batchscale.planning.words import plan_sentences

__all__ = [
    "CANDIDATE_SCHEMA",
    "PLAN_SCHEMA",
    "Answers",
    "Curve",
    "CurvePoint",
    "FinishedRun",
    "Machine",
    "MachinePlan",
    "RunCosts",
    "Runs",
    "SearchCost",
    "StepModel",
    "StepTime",
    "Wishes",
    "add_batch_sizes",
    "analysis_curve",
    "evaluate",
    "find_answers",
    "fit_step_model",
    "make_plan",
    "plan_from_runs",
    "plan_records",
    "plan_sentences",
    "read_analysis_json",
    "read_curve_csv",
    "read_machines",
    "read_price_list",
    "read_runs",
    "read_step_times",
    "records_step_times",
    "runs_curve",
    "runs_step_times",
    "step_models_of_records",
]
