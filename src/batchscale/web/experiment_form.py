"""The form of a new experiment: its fields for a workload, and the experiment file that they make.

A field starts with what ``batchscale init --workload`` would write. Wrong values are written to the file as they are,
and the check reports them.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from batchscale.errors import BatchscaleError
from batchscale.init_file import starting_text
from batchscale.spec.experiment import StopRule, WorkloadSpec
from batchscale.spec.space import ParameterConfig, ParameterType
from batchscale.spec.workload_name import WorkloadName
from batchscale.study.stop_rules.rule import find_rule

if TYPE_CHECKING:
    from batchscale.workloads.registry import Parts

DEFAULT_WORKLOAD = "digits/fc_64/nesterov_momentum"  # its data comes with the package
WORKLOAD_KEYS = ("dataset", "model", "optimizer")
UNITS = ("epochs", "steps", "examples", "tokens")
COMMON_FIELDS = ("trials", "stop", "finishers", "seed", "name", "csrf")  # kept when the workload changes
BUDGETS = (1_000, 1_000_000)  # a range that differs between these step budgets follows from the budget


@dataclass(frozen=True)
class RangeField:
    """The field of one metaparameter: its default range as text; empty if that follows from the step budget."""

    name: str
    type: str
    scale: str | None
    value: str

    @property
    def key(self) -> str:
        """The name of the field."""
        return f"range_{self.name}"

    @property
    def hint(self) -> str:
        """The hint beside the field."""
        if self.type == ParameterType.DISCRETE:
            return "values with commas; empty: the workload's default"
        return "lowest to highest; empty: the workload's default" + ("" if self.value else ", from the step budget")


def range_fields(workload: str, schedule: str = "") -> tuple[RangeField, ...]:
    """Return the fields of all metaparameters searched by default; none for a workload that does not exist."""
    parts = find_workload_parts(workload, schedule)
    if parts is None:
        return ()
    spaces = [parts.tunables.space(steps) for steps in BUDGETS]
    return tuple(
        RangeField(
            config.name,
            str(config.type),
            config.scale and str(config.scale),
            _range_text(config) if config == other else "",
        )
        for config, other in zip(*spaces, strict=True)
    )


def find_workload_parts(workload: str, schedule: str = "") -> "Parts | None":
    """Return the parts of a built-in workload; None if one of them does not exist or they do not fit together."""
    from batchscale.workloads.registry import find_parts

    try:
        return find_parts(WorkloadSpec(WorkloadName.parse(workload), schedule=schedule or None))
    except BatchscaleError:
        return None


@cache
def schedule_names() -> tuple[str, ...]:
    """Return the schedules that need no options."""
    from batchscale.workloads.schedules.declaration import SCHEDULES

    return tuple(name for name, schedule in SCHEDULES.all().items() if not schedule.options)


def default_form() -> dict[str, str]:
    """Return the form of the default workload."""
    return workload_form(DEFAULT_WORKLOAD)


def workload_form(workload: str) -> dict[str, str]:
    """Return the form as ``batchscale init --workload`` fills the file.

    Raises:
        BatchscaleError: there is no such workload.
    """
    return form_of(tomllib.loads(starting_text(WorkloadName.parse(workload))))


def form_of(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of an experiment file, as far as it has them."""
    budget, search = _table(data, "budget"), _table(data, "search")
    spec = data.get("workload")
    table = spec if isinstance(spec, dict) else {}
    workload = spec if isinstance(spec, str) else "/".join(str(table.get(k, "")) for k in WORKLOAD_KEYS)
    unit = next((unit for unit in UNITS if unit in budget), UNITS[0])
    sizes = data.get("batch_sizes", [])
    form = {
        "workload": workload, "schedule": str(table.get("schedule", "")), "goal": str(data.get("goal", "")),
        "batch_sizes": ", ".join(map(str, sizes)) if isinstance(sizes, list) else str(sizes),
        "trials": str(data.get("trials", 20)), "stop": str(data.get("stop", StopRule.RACE)),
        "finishers": str(data.get("finishers", 5)), "seed": str(data.get("seed", 0)),
        "budget": str(budget.get(unit, "")), "budget_unit": unit,
        "at_least_steps": str(budget.get("at_least_steps", "")),
    }  # fmt: skip
    ranges = {f"range_{name}": _config_text(config) for name, config in _table(search, "space").items()}
    return form | ranges | {"filled": _mark(form)}


def follow_workload(form: Mapping[str, str], *, again: bool = False) -> dict[str, str]:
    """Return the form with the defaults of its workload if another was chosen since it was filled; else as typed.

    Another schedule has other metaparameters: new ones get their default ranges. ``again`` fills the form anyway.
    """
    typed = dict(form)
    if find_workload_parts(form.get("workload", "")) is None:
        return typed
    filled = form.get("filled", "").partition(" ")
    if again or filled[0] != form["workload"]:
        common = {key: value for key, value in form.items() if key in COMMON_FIELDS}
        return workload_form(form["workload"]) | common
    fields = range_fields(form["workload"], form.get("schedule", ""))
    if filled[2] != form.get("schedule", "") and fields:
        others = {key: value for key, value in typed.items() if not key.startswith("range_")}
        typed = others | {field.key: form.get(field.key, field.value) for field in fields} | {"filled": _mark(typed)}
    return typed


def _mark(form: Mapping[str, str]) -> str:
    """The workload and schedule that a form was filled for."""
    return f"{form['workload']} {form['schedule']}"


def _table(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = data.get(key)
    return table if isinstance(table, dict) else {}


def _range_text(config: ParameterConfig) -> str:
    if config.type is ParameterType.DISCRETE:
        return ", ".join(f"{point:.12g}" for point in config.feasible_points)
    return f"{config.min_value:.12g} to {config.max_value:.12g}"


def _config_text(config: object) -> str:
    if not isinstance(config, dict):
        return ""
    points = config.get("feasible_points")
    if isinstance(points, list):
        return ", ".join(map(str, points))
    return f"{config.get('min_value', '')} to {config.get('max_value', '')}"


@dataclass(frozen=True)
class Field:
    """One field of the form: its name, label, hint and options."""

    name: str
    label: str
    hint: str = ""
    options: tuple[str, ...] = ()


def form_fields() -> tuple[Field, ...]:
    """Return the fields that every workload has."""
    return (
        Field("goal", "Goal", "metric, < or >, number"),
        Field(
            "batch_sizes",
            "Batch sizes",
            "numbers and ranges, with commas: 4, 16, 64..1024, full; or 16k tokens, 64k tokens; or auto",
        ),
        Field("trials", "Trials of each search", "at every batch size; the paper used 100; or auto"),
        Field("stop", "A trial ends", "race: as soon as it cannot win any more", tuple(StopRule)),
        Field("finishers", "Finishers of a race", "five give an interval of the curve"),
        Field("budget", "Budget of a trial", "the longest it may train"),
        Field("budget_unit", "Unit of the budget", "", UNITS),
        Field("at_least_steps", "At least so many steps", "large batches make few steps in an epoch"),
        Field("schedule", "Learning rate schedule", "another one has other metaparameters", schedule_names()),
        Field("seed", "Seed"),
    )


def form_toml(form: Mapping[str, str]) -> str:
    """Return the experiment file of the fields; missing ones have their defaults, wrong values stay in it."""
    value = {key: text.strip()[:500] for key, text in (default_form() | dict(form)).items()}
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
    """True if a stop rule exists and has finishers; a wrong name is refused with the whole file."""
    return stop in tuple(StopRule) and find_rule(stop).uses_finishers


def with_trials(text: str, trials: int) -> str:
    r"""Return the text with another number of trials, to extend a run.

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
    """Return a number as it is and anything else as text, so that nothing can become another key."""
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
