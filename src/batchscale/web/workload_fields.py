"""What the form of a new experiment holds for a workload: what ``batchscale init --workload`` would write."""

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

if TYPE_CHECKING:
    from batchscale.workloads.registry import Parts

FIRST = "digits/fc_64/nesterov_momentum"  # its data comes with the package
WORKLOAD_KEYS = ("dataset", "model", "optimizer")
UNITS = ("epochs", "steps", "examples")
STAYING = ("trials", "stop", "finishers", "seed", "name", "csrf")  # what no workload has a say in
BUDGETS = (1_000, 1_000_000)  # a range that differs between these step budgets follows from the budget


@dataclass(frozen=True)
class RangeField:
    """The field of one metaparameter: what is searched by default, as text; empty: it follows from the step budget."""

    name: str
    type: str
    scale: str | None
    value: str

    @property
    def key(self) -> str:
        """What the form calls it."""
        return f"range_{self.name}"

    @property
    def hint(self) -> str:
        """How it is filled in."""
        if self.type == ParameterType.DISCRETE:
            return "values with commas; empty: the workload's own"
        return "lowest to highest; empty: the workload's own" + ("" if self.value else ", from the step budget")


def range_fields(workload: str, schedule: str = "") -> tuple[RangeField, ...]:
    """The fields of all metaparameters that are searched by default; none for a workload that does not exist."""
    parts = find_workload_parts(workload, schedule)
    if parts is None:
        return ()
    spaces = [parts.tunables.space(steps) for steps in BUDGETS]
    return tuple(
        RangeField(one.name, str(one.type), one.scale and str(one.scale), _range_text(one) if one == other else "")
        for one, other in zip(*spaces, strict=True)
    )


def find_workload_parts(workload: str, schedule: str = "") -> "Parts | None":
    """The parts of a built-in workload; None if one of them does not exist or they do not fit together."""
    from batchscale.workloads.registry import find_parts

    try:
        return find_parts(WorkloadSpec(WorkloadName.parse(workload), schedule=schedule or None))
    except BatchscaleError:
        return None


@cache
def schedule_names() -> tuple[str, ...]:
    """The schedules that need no options."""
    from batchscale.workloads.schedules.declaration import SCHEDULES

    return tuple(name for name, one in SCHEDULES.all().items() if not one.options)


def default_form() -> dict[str, str]:
    """What stands in the form at first."""
    return workload_form(FIRST)


def workload_form(workload: str) -> dict[str, str]:
    """The form as ``batchscale init --workload`` fills the file.

    Raises:
        BatchscaleError: there is no such workload.
    """
    return form_of(tomllib.loads(starting_text(WorkloadName.parse(workload))))


def form_of(data: Mapping[str, Any]) -> dict[str, str]:
    """The fields of an experiment file, as far as it has them."""
    budget, search = _table(data, "budget"), _table(data, "search")
    given = data.get("workload")
    table = given if isinstance(given, dict) else {}
    workload = given if isinstance(given, str) else "/".join(str(table.get(k, "")) for k in WORKLOAD_KEYS)
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
    ranges = {f"range_{name}": _given_text(one) for name, one in _table(search, "space").items()}
    return form | ranges | {"filled": _mark(form)}


def follow_workload(form: Mapping[str, str], *, again: bool = False) -> dict[str, str]:
    """The form with what its workload asks for, if another was chosen since it was filled; as typed otherwise.

    Another schedule has other metaparameters: those that are new come with their ranges. ``again`` fills it anyway.
    """
    typed = dict(form)
    if find_workload_parts(form.get("workload", "")) is None:
        return typed
    filled = form.get("filled", "").partition(" ")
    if again or filled[0] != form["workload"]:
        own = {key: value for key, value in form.items() if key in STAYING}
        return workload_form(form["workload"]) | own
    fields = range_fields(form["workload"], form.get("schedule", ""))
    if filled[2] != form.get("schedule", "") and fields:
        kept = {key: value for key, value in typed.items() if not key.startswith("range_")}
        typed = kept | {field.key: form.get(field.key, field.value) for field in fields} | {"filled": _mark(typed)}
    return typed


def _mark(form: Mapping[str, str]) -> str:
    """For which workload and schedule a form was filled."""
    return f"{form['workload']} {form['schedule']}"


def _table(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = data.get(key)
    return found if isinstance(found, dict) else {}


def _range_text(config: ParameterConfig) -> str:
    if config.type is ParameterType.DISCRETE:
        return ", ".join(f"{point:.12g}" for point in config.feasible_points)
    return f"{config.min_value:.12g} to {config.max_value:.12g}"


def _given_text(given: object) -> str:
    if not isinstance(given, dict):
        return ""
    points = given.get("feasible_points")
    if isinstance(points, list):
        return ", ".join(map(str, points))
    return f"{given.get('min_value', '')} to {given.get('max_value', '')}"
