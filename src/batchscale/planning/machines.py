"""Machines and what they cost: ``machines.toml``, checked key by key, and the values it becomes.

A machine is one kind of host. Where accelerators and host are priced apart, a machine has both prices and both count.
No price is ever made up: a machine without one is refused.
"""

import datetime
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from batchscale.errors import PlanningError, UnknownNameError, one_line, suggest_names
from batchscale.planning.step_times import device_key

STALE_AFTER = datetime.timedelta(days=90)
MAX_FILE_BYTES = 5_000_000
MAX_HOSTS = 100_000

_Name = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[^\x00-\x1f\x7f]+$")]
_Price = Annotated[float, Field(gt=0, lt=1e9, allow_inf_nan=False)]


@dataclass(frozen=True)
class Machine:
    """One kind of host: its devices, how many can be had, and what an hour of it costs.

    Attributes:
        name: As the provider calls it.
        device: As step times call it; spellings such as "NVIDIA T4" and "T4" are the same.
        devices_per_host: Devices of each host.
        max_hosts: The most hosts that can be had at once.
        price_per_host_hour: For a host with all its devices; devices priced apart are in it already.
        unit: Of the price: USD, EUR, any.
        fixed_price: Paid once per run, whatever it takes.
        startup_s: From asking for hosts to the first step; paid for.
        max_batch_per_device: What a device's memory holds; None: not known.
        region: Where the price holds.
        spot: Whether hosts may be taken away.
        interruptions_per_hour: Of each host, where they may.
        source: Where the price was found.
        date: When.
    """

    name: str
    device: str
    devices_per_host: int
    max_hosts: int
    price_per_host_hour: float
    unit: str
    fixed_price: float = 0.0
    startup_s: float = 0.0
    max_batch_per_device: int | None = None
    region: str | None = None
    spot: bool = False
    interruptions_per_hour: float = 0.0
    source: str | None = None
    date: datetime.date | None = None

    def is_stale(self, today: datetime.date) -> bool:
        """Whether the price is older than 90 days, or of no known age."""
        return self.date is None or today - self.date > STALE_AFTER


class MachineTable(BaseModel):
    """A ``[[machine]]`` table; keys and values as they may stand in the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: _Name
    device: _Name
    devices_per_host: Annotated[int, Field(ge=1, le=10_000)]
    max_hosts: Annotated[int, Field(ge=1, le=MAX_HOSTS)] = 1
    price_per_host_hour: _Price | None = None
    price_per_device_hour: _Price | None = None
    fixed_price: Annotated[float, Field(ge=0, lt=1e9, allow_inf_nan=False)] = 0.0
    unit: _Name
    startup_s: Annotated[float, Field(ge=0, lt=1e7, allow_inf_nan=False)] = 0.0
    max_batch_per_device: Annotated[int, Field(ge=1)] | None = None
    region: _Name | None = None
    spot: bool = False
    interruptions_per_hour: Annotated[float, Field(ge=0, lt=1e3, allow_inf_nan=False)] = 0.0
    source: _Name | None = None
    date: datetime.date | None = None

    @model_validator(mode="after")
    def _check(self) -> "MachineTable":
        if self.price_per_host_hour is None and self.price_per_device_hour is None:
            raise ValueError("needs price_per_host_hour, price_per_device_hour, or both; no price is ever guessed")
        if self.interruptions_per_hour and not self.spot:
            raise ValueError("interruptions_per_hour is for machines with spot = true")
        return self

    def machine(self) -> Machine:
        """The machine, with all that its host costs in one price."""
        per_device = (self.price_per_device_hour or 0.0) * self.devices_per_host
        return Machine(
            name=self.name,
            device=self.device,
            devices_per_host=self.devices_per_host,
            max_hosts=self.max_hosts,
            price_per_host_hour=(self.price_per_host_hour or 0.0) + per_device,
            unit=self.unit,
            fixed_price=self.fixed_price,
            startup_s=self.startup_s,
            max_batch_per_device=self.max_batch_per_device,
            region=self.region,
            spot=self.spot,
            interruptions_per_hour=self.interruptions_per_hour,
            source=self.source,
            date=self.date,
        )


class MachinesFile(BaseModel):
    """The whole file: a list of ``[[machine]]`` tables."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    machine: Annotated[list[MachineTable], Field(min_length=1)]


def read_machines(path: Path) -> tuple[Machine, ...]:
    """The machines of a TOML file.

    Raises:
        PlanningError: it cannot be read or says something that cannot be; names the machine and the key.
    """
    where = one_line(path, 300)
    try:
        if path.is_file() and path.stat().st_size > MAX_FILE_BYTES:
            raise PlanningError(f"{where}: a file of machines has at most {MAX_FILE_BYTES:,} bytes. Found more.")
        data = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise PlanningError(f"{where}: the file of machines cannot be read ({error.strerror or error}).") from None
    except (ValueError, RecursionError) as error:
        raise PlanningError(f"{where}: machines are written in TOML, in UTF-8: {one_line(error, 300)}.") from None
    try:
        file = MachinesFile.model_validate(data)
    except ValidationError as error:
        raise PlanningError(f"{where}: {_explain(error, data)}") from None
    machines = tuple(table.machine() for table in file.machine)
    check_names(machines, where)
    return machines


def check_names(machines: Sequence[Machine], where: str) -> None:
    """Refuses two machines of one name."""
    names = [machine.name for machine in machines]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PlanningError(f"{where}: each machine has a name of its own. Found '{one_line(twice)}' more than once.")


def one_unit(machines: Iterable[Machine]) -> str:
    """The unit that all prices have."""
    units = sorted({machine.unit for machine in machines})
    if len(units) != 1:
        raise PlanningError(
            f"All prices of a plan are in one unit. Found {', '.join(units) or 'none'}; convert them, or name machines "
            "of one unit with --machine."
        )
    return units[0]


def choose_machines(machines: Sequence[Machine], names: Sequence[str], devices: Sequence[str]) -> tuple[Machine, ...]:
    """The machines of these names and devices; all where none are named."""
    known = {machine.name for machine in machines}
    for name in names:
        if name not in known:
            raise UnknownNameError(f"--machine: no machine is called '{one_line(name)}'; {suggest_names(name, known)}")
    kept = [machine for machine in machines if not names or machine.name in names]
    wanted = {device_key(device): device for device in devices}
    own = {device_key(machine.device): machine.device for machine in kept}
    for key, device in wanted.items():
        if key not in own:
            raise UnknownNameError(
                f"--device: no machine has '{one_line(device)}'; {suggest_names(device, own.values())}"
            )
    return tuple(machine for machine in kept if not wanted or device_key(machine.device) in wanted)


def _explain(error: ValidationError, data: object) -> str:
    """One problem in words: the machine, the key, the rule, what was found."""
    problems = error.errors(include_url=False)
    problem = next((item for item in problems if item["type"] == "extra_forbidden"), problems[0])
    location = [part for part in problem["loc"] if part != "machine"]
    index = next((part for part in location if isinstance(part, int)), None)
    keys = [part for part in location if isinstance(part, str)]
    at = "" if index is None else f"[[machine]] number {index + 1}{_name_at(data, index)}: "
    key = one_line(keys[-1] if keys else "machine")
    if problem["type"] == "extra_forbidden":
        valid = MachineTable.model_fields if index is not None else MachinesFile.model_fields
        return f"{at}unknown key '{key}'; {suggest_names(key, valid)}"
    if problem["type"] == "missing":
        return f"{at}key '{key}' is needed and missing."
    if problem["type"] == "value_error":
        return f"{at}a machine {problem['msg'].removeprefix('Value error, ')}."
    return f"{at}key '{key}' {problem['msg'].removeprefix('Input ')}. Found {one_line(repr(problem['input']))}."


def _name_at(data: object, index: int) -> str:
    try:
        name = data["machine"][index]["name"]  # type: ignore[index]
    except (LookupError, TypeError):
        return ""
    return f" ('{one_line(name, 60)}')"


def machines_toml(machines: Iterable[Machine]) -> str:
    """The text of a ``machines.toml`` with these machines."""
    return "\n".join(_machine_toml(machine) for machine in machines)


def _machine_toml(machine: Machine) -> str:
    values: list[tuple[str, object]] = [
        ("name", machine.name),
        ("device", machine.device),
        ("devices_per_host", machine.devices_per_host),
        ("max_hosts", machine.max_hosts),
        ("price_per_host_hour", round(machine.price_per_host_hour, 6)),
        ("unit", machine.unit),
        ("fixed_price", machine.fixed_price or None),
        ("startup_s", machine.startup_s or None),
        ("max_batch_per_device", machine.max_batch_per_device),
        ("region", machine.region),
        ("spot", machine.spot or None),
        ("interruptions_per_hour", machine.interruptions_per_hour or None),
        ("source", machine.source),
        ("date", machine.date),
    ]
    lines = [f"{key} = {_toml(value)}" for key, value in values if value is not None]
    return "\n".join(["[[machine]]", *lines, ""])


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
