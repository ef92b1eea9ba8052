"""The JSON object of a plan: plain values, null where a number is missing."""

import math
from typing import Any

from batchscale.analysis.as_json import optimal_json
from batchscale.planning.estimate_text import estimate_json
from batchscale.planning.first_measurement import STEPS
from batchscale.planning.plan import MachinePlan
from batchscale.planning.recommend import Choice, Recommendations
from batchscale.planning.sentences import left_out_sentences, plan_sentences
from batchscale.planning.step_model import StepModel

VERSION = 1  # of the object that plan prints


def plan_json(plan: MachinePlan) -> dict[str, Any]:
    """Return the object that ``batchscale plan --json`` prints."""
    search = plan.search
    return {
        "version": VERSION,
        "workload": plan.workload,
        "goal": plan.goal,
        "unit": plan.unit,
        "tokens_per_example": plan.table["tokens_per_example"][0],
        **recommendations_json(plan.recommendations),
        "by_device": {device: recommendations_json(best) for device, best in plan.by_device.items()},
        "search": None if search is None else {"time_s": search.time_s, "cost": search.cost},
        **optimal_json(plan.summary),
        "step_time_models": [model_json(model) for model in plan.models],
        "first_measurement": first_json(plan),
        "estimates": [estimate_json(name, estimate) for name, estimate in plan.estimates.items()],
        "sentences": plan_sentences(plan),
        "left_out": left_out_sentences(plan),
        "configurations": [choice_json(row) for row in plan.table.to_dicts()],
    }


def recommendations_json(best: Recommendations) -> dict[str, Any]:
    """Return recommendations as an object."""
    margin, more = best.price_margin, best.next_measurement
    return {
        "fastest": choice_json(best.fastest),
        "cheapest": choice_json(best.cheapest),
        "twice_the_money": choice_json(best.twice_the_money),
        "within_budget": None if best.within_budget is None else choice_json(best.within_budget),
        "within_deadline": None if best.within_deadline is None else choice_json(best.within_deadline),
        "front": [choice_json(choice) for choice in best.front],
        "as_fast": [choice_json(choice) for choice in best.as_fast],
        "as_cheap": [choice_json(choice) for choice in best.as_cheap],
        "price_margin": None
        if margin is None
        else {"rise": margin.rise, "rival_falls_to": margin.fall, "rival": choice_json(margin.rival)},
        "next_measurement": None
        if more is None
        else {
            "kind": more.kind,
            "configuration": choice_json(more.choice),
            "factor_before": _finite(more.before),
            "factor_after": more.after,
            "settles": more.settles,
        },
    }


def choice_json(choice: Choice) -> dict[str, Any]:
    """Return a configuration as an object."""
    return {name: _finite(value) for name, value in choice.items()}


def first_json(plan: MachinePlan) -> dict[str, Any] | None:
    """Return the measurement to make before deciding by estimates, as an object."""
    first = plan.first_measurement
    return None if first is None else vars(first) | {"choice": choice_json(first.choice), "steps": STEPS}


def model_json(model: StepModel) -> dict[str, Any]:
    """Return a model of step times as an object, with its measurements and their errors."""
    return {
        "device": model.device,
        "terms": list(model.form.names),
        "overlap": model.form.overlap.value,
        "aicc": model.aicc,
        "parameters": [
            {"name": p.name, "value": p.value, "relative_error": p.relative_error, "known": p.is_known}
            for p in model.parameters
        ],
        "measurements": [
            {
                "hosts": time.hosts,
                "devices_per_host": time.devices_per_host,
                "batch_size": time.batch_size,
                "step_time_s": time.step_time_s,
                "residual": float(residual),
                "left_out_error": _finite(float(error)),
            }
            for time, residual, error in zip(model.times, model.residuals, model.left_out, strict=True)
        ],
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
