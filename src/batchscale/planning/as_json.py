"""The JSON object of a plan: plain values, null where a number is missing."""

import math
from typing import Any

from batchscale.planning.answers import Answers, Choice
from batchscale.planning.plan import MachinePlan
from batchscale.planning.step_model import StepModel
from batchscale.planning.words import left_out_sentences, plan_sentences

VERSION = 1  # of the object that plan prints


def plan_json(plan: MachinePlan) -> dict[str, Any]:
    """The object that ``batchscale plan --json`` prints."""
    search = plan.search
    return {
        "version": VERSION,
        "workload": plan.workload,
        "goal": plan.goal,
        "unit": plan.unit,
        **answers_json(plan.answers),
        "by_device": {device: answers_json(answers) for device, answers in plan.by_device.items()},
        "search": None if search is None else {"time_s": search.time_s, "cost": search.cost},
        "step_time_models": [model_json(model) for model in plan.models],
        "sentences": plan_sentences(plan),
        "left_out": left_out_sentences(plan),
        "configurations": [choice_json(row) for row in plan.table.to_dicts()],
    }


def answers_json(answers: Answers) -> dict[str, Any]:
    """The answers as an object."""
    margin, more = answers.price_margin, answers.next_measurement
    return {
        "fastest": choice_json(answers.fastest),
        "cheapest": choice_json(answers.cheapest),
        "twice_the_money": choice_json(answers.twice_the_money),
        "within_budget": None if answers.within_budget is None else choice_json(answers.within_budget),
        "within_deadline": None if answers.within_deadline is None else choice_json(answers.within_deadline),
        "front": [choice_json(choice) for choice in answers.front],
        "as_fast": [choice_json(choice) for choice in answers.as_fast],
        "as_cheap": [choice_json(choice) for choice in answers.as_cheap],
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
    """A configuration as an object."""
    return {name: _finite(value) for name, value in choice.items()}


def model_json(model: StepModel) -> dict[str, Any]:
    """A model of step times as an object, with its measurements and their errors."""
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
                "hosts": one.hosts,
                "devices_per_host": one.devices_per_host,
                "batch_size": one.batch_size,
                "step_time_s": one.step_time_s,
                "residual": float(residual),
                "left_out_error": _finite(float(error)),
            }
            for one, residual, error in zip(model.times, model.residuals, model.left_out, strict=True)
        ],
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
