"""The form of a new experiment: fields to TOML, which names wrong values as they are, for the check to tell."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from batchscale.spec.experiment import StopRule
from batchscale.spec.space import ParameterType
from batchscale.study.stop_rules import find_rule
from batchscale.web.workload_fields import (
    UNITS,
    WORKLOAD_KEYS,
    RangeField,
    default_form,
    range_fields,
    schedule_names,
)


@dataclass(frozen=True)
class Field:
    """One field of the form: what it is called, what it means, and what can be chosen."""

    name: str
    label: str
    hint: str = ""
    options: tuple[str, ...] = ()


def form_fields() -> tuple[Field, ...]:
    """The fields below the workload that every workload has."""
    return (
        Field("goal", "Goal", "metric, < or >, number"),
        Field("batch_sizes", "Batch sizes", "numbers and ranges, with commas: 4, 16, 64..1024, full"),
        Field("trials", "Trials of each search", "at every batch size; the paper used 100"),
        Field("stop", "A trial ends", "race: as soon as it cannot win any more", tuple(StopRule)),
        Field("finishers", "Finishers of a race", "five tell how sure the curve is"),
        Field("budget", "Budget of a trial", "the longest it may train"),
        Field("budget_unit", "Unit of the budget", "", UNITS),
        Field("at_least_steps", "At least so many steps", "large batches make few steps in an epoch"),
        Field("schedule", "Learning rate schedule", "another one has other metaparameters", schedule_names()),
        Field("seed", "Seed"),
    )


def form_toml(form: Mapping[str, str]) -> str:
    """The experiment file that the fields make; what is missing is as at first, wrong values stay in it."""
    value = {key: given.strip()[:500] for key, given in (default_form() | dict(form)).items()}
    sizes = ", ".join(_item(part.strip()) for part in value["batch_sizes"].split(",") if part.strip())
    unit = value["budget_unit"] if value["budget_unit"] in UNITS else UNITS[0]
    workload, schedule = value["workload"], value["schedule"]
    parts = workload.rsplit("/", 2)
    table = dict(zip(WORKLOAD_KEYS, parts, strict=True)) if len(parts) == 3 else {}
    lines = [
        f"goal = {_text(value['goal'])}",
        f"batch_sizes = [{sizes}]",
        f"trials = {_item(value['trials'])}",
        f"stop = {_text(value['stop'])}",
        *([f"finishers = {_item(value['finishers'])}"] if _uses_finishers(value["stop"]) else []),
        f"seed = {_item(value['seed'])}",
        *([] if table else [f"workload = {_text(workload)}"]),
        *(["", "[workload]"] if table else []),
        *(f"{key} = {_text(part)}" for key, part in table.items()),
        *([f"schedule = {_text(schedule)}"] if table and schedule else []),
        "",
        "[budget]",
        f"{unit} = {_item(value['budget'])}",
        *([f"at_least_steps = {_item(value['at_least_steps'])}"] if value["at_least_steps"] else []),
        "",
        "[evaluation]",
        "count = 100",
        'spacing = "log"',
    ]
    fields = range_fields(workload, schedule)
    ranges = [_range(field, value[field.key]) for field in fields if value.get(field.key)]
    return "\n".join([*lines, *(["", "[search.space]", *ranges] if ranges else [])]) + "\n"


def _uses_finishers(stop: str) -> bool:
    """Whether a stop rule is one, and has finishers; a wrong name is refused with the whole file."""
    return stop in tuple(StopRule) and find_rule(stop).uses_finishers


def with_trials(text: str, trials: int) -> str:
    r"""The text with another number of trials, as extending asks for.

    >>> with_trials('goal = "val/loss < 1"\ntrials = 3\n', 5)
    'goal = "val/loss < 1"\ntrials = 5\n'
    """
    lines = text.splitlines()
    tables = next((place for place, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
    for place in range(tables):
        if lines[place].partition("=")[0].strip() == "trials":
            lines[place] = f"trials = {trials}"
            break
    else:
        lines.insert(0, f"trials = {trials}")
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _item(value: str) -> str:
    """A number as it is, anything else as text, so that nothing can become another key."""
    try:
        float(value)
    except ValueError:
        return _text(value)
    return value.replace("_", "") if value.isascii() and value[:1].isdigit() else _text(value)


def _range(field: RangeField, text: str) -> str:
    if field.type == ParameterType.DISCRETE:
        points = ", ".join(_item(part.strip()) for part in text.split(",") if part.strip())
        return f'{field.name} = {{ type = "DISCRETE", feasible_points = [{points}] }}'
    low, _, high = text.partition(" to ")
    ends = f"min_value = {_item(low.strip())}, max_value = {_item(high.strip())}"
    return f'{field.name} = {{ type = "{field.type}", scale = "{field.scale}", {ends} }}'
