"""Planning: from a curve, step times and prices to the machines, by time and by money. Pure; trains nothing.

What other packages use stands here and is loaded when first used. ``jobs``, ``words`` and ``as_json`` are doors of
their own.
"""

from typing import TYPE_CHECKING

from batchscale.doors import lazy_names

if TYPE_CHECKING:
    from batchscale.planning.answers import PICKS as PICKS
    from batchscale.planning.answers import Answers as Answers
    from batchscale.planning.answers import Choice as Choice
    from batchscale.planning.answers import find_answers as find_answers
    from batchscale.planning.candidates import CANDIDATE_SCHEMA as CANDIDATE_SCHEMA
    from batchscale.planning.catalogue import CatalogueFilter as CatalogueFilter
    from batchscale.planning.catalogue import import_catalogue as import_catalogue
    from batchscale.planning.csv_rows import read_csv_rows as read_csv_rows
    from batchscale.planning.curve import Curve as Curve
    from batchscale.planning.curve import CurvePoint as CurvePoint
    from batchscale.planning.curve import add_batch_sizes as add_batch_sizes
    from batchscale.planning.curve import mean_interval as mean_interval
    from batchscale.planning.curve_input import analysis_curve as analysis_curve
    from batchscale.planning.curve_input import read_analysis_json as read_analysis_json
    from batchscale.planning.curve_input import read_curve_csv as read_curve_csv
    from batchscale.planning.curve_input import with_give_up as with_give_up
    from batchscale.planning.evaluation import PLAN_SCHEMA as PLAN_SCHEMA
    from batchscale.planning.evaluation import RunCosts as RunCosts
    from batchscale.planning.evaluation import evaluate as evaluate
    from batchscale.planning.machines import Machine as Machine
    from batchscale.planning.machines import MachineTable as MachineTable
    from batchscale.planning.machines import choose_machines as choose_machines
    from batchscale.planning.machines import machines_toml as machines_toml
    from batchscale.planning.machines import read_machines as read_machines
    from batchscale.planning.of_records import plan_records as plan_records
    from batchscale.planning.of_records import step_models_of_records as step_models_of_records
    from batchscale.planning.plan import MachinePlan as MachinePlan
    from batchscale.planning.plan import SearchCost as SearchCost
    from batchscale.planning.plan import Wishes as Wishes
    from batchscale.planning.plan import make_plan as make_plan
    from batchscale.planning.plan import plan_from_runs as plan_from_runs
    from batchscale.planning.price_list import check_max_hosts as check_max_hosts
    from batchscale.planning.price_list import read_price_list as read_price_list
    from batchscale.planning.price_list import stale_sentence as stale_sentence
    from batchscale.planning.runs import FinishedRun as FinishedRun
    from batchscale.planning.runs import Runs as Runs
    from batchscale.planning.runs import give_up_at as give_up_at
    from batchscale.planning.runs import is_runs_file as is_runs_file
    from batchscale.planning.runs import read_runs as read_runs
    from batchscale.planning.runs import runs_curve as runs_curve
    from batchscale.planning.runs import runs_machines as runs_machines
    from batchscale.planning.runs import runs_step_times as runs_step_times
    from batchscale.planning.search_cost import trial_seconds as trial_seconds
    from batchscale.planning.step_file import append_step_times as append_step_times
    from batchscale.planning.step_model import StepModel as StepModel
    from batchscale.planning.step_model import fit_step_model as fit_step_model
    from batchscale.planning.step_times import COLUMN_ALIASES as COLUMN_ALIASES
    from batchscale.planning.step_times import StepTime as StepTime
    from batchscale.planning.step_times import device_key as device_key
    from batchscale.planning.step_times import read_step_times as read_step_times
    from batchscale.planning.step_times import records_step_times as records_step_times
    from batchscale.planning.words import plan_sentences as plan_sentences

_PUBLIC = {
    "PICKS": "answers",
    "COLUMN_ALIASES": "step_times",
    "Answers": "answers",
    "CANDIDATE_SCHEMA": "candidates",
    "CatalogueFilter": "catalogue",
    "Choice": "answers",
    "Curve": "curve",
    "CurvePoint": "curve",
    "FinishedRun": "runs",
    "Machine": "machines",
    "MachinePlan": "plan",
    "MachineTable": "machines",
    "PLAN_SCHEMA": "evaluation",
    "RunCosts": "evaluation",
    "Runs": "runs",
    "SearchCost": "plan",
    "StepModel": "step_model",
    "StepTime": "step_times",
    "Wishes": "plan",
    "add_batch_sizes": "curve",
    "analysis_curve": "curve_input",
    "append_step_times": "step_file",
    "check_max_hosts": "price_list",
    "choose_machines": "machines",
    "device_key": "step_times",
    "evaluate": "evaluation",
    "find_answers": "answers",
    "fit_step_model": "step_model",
    "give_up_at": "runs",
    "import_catalogue": "catalogue",
    "is_runs_file": "runs",
    "machines_toml": "machines",
    "make_plan": "plan",
    "mean_interval": "curve",
    "plan_from_runs": "plan",
    "plan_records": "of_records",
    "plan_sentences": "words",
    "read_analysis_json": "curve_input",
    "read_csv_rows": "csv_rows",
    "read_curve_csv": "curve_input",
    "read_machines": "machines",
    "read_price_list": "price_list",
    "read_runs": "runs",
    "read_step_times": "step_times",
    "records_step_times": "step_times",
    "runs_curve": "runs",
    "runs_machines": "runs",
    "runs_step_times": "runs",
    "stale_sentence": "price_list",
    "step_models_of_records": "of_records",
    "trial_seconds": "search_cost",
    "with_give_up": "curve_input",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = lazy_names(__name__, _PUBLIC)
