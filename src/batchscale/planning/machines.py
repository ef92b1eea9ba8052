"""Machines and their prices: ``machines.toml``, checked key by key, and the list that comes with the package.

A machine is one kind of host. If accelerators and host are priced apart, a machine has both prices and both count.
No price is ever made up: a machine without one is refused. The shipped list, ``prices.csv``, has what the providers'
public pages listed on the date of each row, before any discount.
"""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from batchscale.errors import PlanningError, UnknownNameError, one_line, suggest_names
from batchscale.formatting import toml_line
from batchscale.planning.csv_rows import CsvRow, read_csv_rows
from batchscale.planning.devices import nearest_devices
from batchscale.spec.untrusted_text import parse_toml

STALE_AFTER = datetime.timedelta(days=90)
MAX_FILE_BYTES = 5_000_000
MAX_HOSTS = 100_000
PRICE_LIST = Path(__file__).with_name("prices.csv")
PRICE_COLUMNS = (
    "name", "device", "devices_per_host", "price_per_host_hour", "price_per_device_hour", "unit", "region", "source",
    "date",
)  # fmt: skip

_Name = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[^\x00-\x1f\x7f]+$")]
_Rate = Annotated[float, Field(ge=0, lt=1e3, allow_inf_nan=False)]
_Price = Annotated[float, Field(gt=0, lt=1e9, allow_inf_nan=False)]


@dataclass(frozen=True)
class Machine:
    """One kind of host: its devices, the number available, and the price of an hour.

    Attributes:
        name: The provider's name of it.
        device: The name used by step times; spellings such as "NVIDIA T4" and "T4" are the same.
        devices_per_host: Devices of each host.
        max_hosts: The most hosts available at once.
        price_per_host_hour: For a host with all its devices; devices priced apart are in it already.
        unit: Of the price: USD, EUR, any.
        fixed_price: Paid once per run.
        startup_s: From asking for hosts to the first step; paid for.
        max_batch_per_device: The examples that fit into a device's memory; None: not known.
        region: The region of the price.
        spot: True if hosts may be taken away.
        interruptions_per_hour: Of each host, if they may.
        source: The page of the price.
        date: Its day.
        price_low: The least price of a host hour, for prices that vary; None: the price is fixed.
        price_high: The highest one.
        interruptions_low: The least rate of interruptions; None: the rate is taken as exact.
        interruptions_high: The highest one.
        network_gbit_per_s: Of a host to others, for estimated step times; None: that of the table of devices.
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
    network_gbit_per_s: float | None = None
    price_low: float | None = None
    price_high: float | None = None
    interruptions_low: float | None = None
    interruptions_high: float | None = None

    def is_stale(self, today: datetime.date) -> bool:
        """True if the price is older than 90 days, or has no date."""
        return self.date is None or today - self.date > STALE_AFTER


class MachineTable(BaseModel):
    """A ``[[machine]]`` table; keys and values of the file."""

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
    network_gbit_per_s: Annotated[float, Field(gt=0, le=1e5, allow_inf_nan=False)] | None = None
    region: _Name | None = None
    spot: bool = False
    interruptions_per_hour: _Rate = 0.0
    source: _Name | None = None
    date: datetime.date | None = None
    price_low: _Price | None = None
    price_high: _Price | None = None
    interruptions_low: _Rate | None = None
    interruptions_high: _Rate | None = None

    @model_validator(mode="after")
    def _check(self) -> "MachineTable":
        price = self.machine_price() if self.price_per_host_hour or self.price_per_device_hour else None
        for low, middle, high, name in (
            (self.price_low, price, self.price_high, "price"),
            (self.interruptions_low, self.interruptions_per_hour, self.interruptions_high, "interruptions"),
        ):
            ends = [value for value in (low, middle, high) if value is not None]
            if ends != sorted(ends):
                raise ValueError(
                    f"has {name}_low and {name}_high around the {name} of a host and hour. Found {low} and {high} "
                    f"around {middle}"
                )
        if (self.interruptions_low or self.interruptions_high) and not self.spot:
            raise ValueError("has interruptions_low and interruptions_high only with spot = true")
        if self.price_per_host_hour is None and self.price_per_device_hour is None:
            raise ValueError("needs price_per_host_hour, price_per_device_hour, or both; no price is ever guessed")
        if self.interruptions_per_hour and not self.spot:
            raise ValueError("interruptions_per_hour is for machines with spot = true")
        return self

    def machine_price(self) -> float:
        """Return the price of a host hour with all its devices."""
        return (self.price_per_host_hour or 0.0) + (self.price_per_device_hour or 0.0) * self.devices_per_host

    def machine(self) -> Machine:
        """Return the machine, with host and devices in one price."""
        values = self.model_dump(exclude={"price_per_device_hour"})
        return Machine(**values | {"price_per_host_hour": self.machine_price()})


class MachinesFile(BaseModel):
    """The whole file: a list of ``[[machine]]`` tables."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    machine: Annotated[list[MachineTable], Field(min_length=1)]


def read_toml_file(path: Path, what: str) -> dict[str, Any]:
    """Return the values of a TOML file of a user; ``what`` it holds, for messages.

    Raises:
        PlanningError: it cannot be read, is too large, or is no TOML.
    """
    where = one_line(path, 300)
    try:
        if path.is_file() and path.stat().st_size > MAX_FILE_BYTES:
            raise PlanningError(f"{where}: a file of {what} has at most {MAX_FILE_BYTES:,} bytes. Found more.")
        return parse_toml(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise PlanningError(f"{where}: the file of {what} cannot be read ({error.strerror or error}).") from None
    except ValueError as error:
        raise PlanningError(f"{where}: the file of {what} must be TOML, in UTF-8: {one_line(error, 300)}.") from None


def read_machines(path: Path) -> tuple[Machine, ...]:
    """Return the machines of a TOML file.

    Raises:
        PlanningError: it cannot be read, or a value is not allowed; names the machine and the key.
    """
    where = one_line(path, 300)
    data = read_toml_file(path, "machines")
    try:
        file = MachinesFile.model_validate(data)
    except ValidationError as error:
        raise PlanningError(f"{where}: {_explain(error, data)}") from None
    machines = tuple(table.machine() for table in file.machine)
    check_names(machines, where)
    return machines


def check_names(machines: Sequence[Machine], where: str) -> None:
    """Raise an error if two machines have the same name."""
    names = [machine.name for machine in machines]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PlanningError(
            f"{where}: each machine must have a name of its own. Found '{one_line(twice)}' more than once."
        )


def one_unit(machines: Iterable[Machine]) -> str:
    """Return the unit of all prices."""
    units = sorted({machine.unit for machine in machines})
    if len(units) != 1:
        raise PlanningError(
            f"All prices of a plan must be in one unit. Found {', '.join(units) or 'none'}; convert them, or name "
            "machines of one unit with --machine."
        )
    return units[0]


def choose_machines(machines: Sequence[Machine], names: Sequence[str], devices: Sequence[str]) -> tuple[Machine, ...]:
    """Return the machines of these names and devices; all if none are named."""
    all_names = {machine.name for machine in machines}
    for name in names:
        if name not in all_names:
            near = suggest_names(name, all_names)
            raise UnknownNameError(f"--machine: no machine is called '{one_line(name)}'; {near}")
    named = [machine for machine in machines if not names or machine.name in names]
    available = {machine.device for machine in named}
    selected = {device: nearest_devices(device, available) for device in devices}
    for device, matching in selected.items():
        if not matching:
            near = suggest_names(device, available)
            raise UnknownNameError(f"--device: no machine has '{one_line(device)}'; {near}")
    return tuple(
        machine for machine in named if not devices or any(machine.device in names for names in selected.values())
    )


def read_price_list(max_hosts: int = 1) -> tuple[Machine, ...]:
    """Return the machines of the shipped list, each with up to so many hosts."""
    file = read_csv_rows(PRICE_LIST, "the list of prices", PRICE_COLUMNS)
    machines = tuple(replace(_priced_machine(row), max_hosts=max_hosts) for row in file.rows)
    check_names(machines, file.where)
    return machines


def _priced_machine(row: CsvRow) -> Machine:
    values = {name: row.text(name) for name in MachineTable.model_fields if row.text(name)}
    numbers = {name: row.number(name, zero=True) for name in values if name in _NUMBERS}
    counts = {name: row.whole(name) for name in values if name in _COUNTS}
    flags = {"spot": row.flag("spot")} if "spot" in values else {}
    try:
        dates = {"date": datetime.date.fromisoformat(values["date"])} if "date" in values else {}
        return MachineTable.model_validate(values | numbers | counts | flags | dates).machine()
    except ValidationError as error:
        raise PlanningError(f"{row.place}: {_explain(error, {})}") from None
    except ValueError as error:
        raise PlanningError(f"{row.place}: date must be a day such as 2026-11-01 ({one_line(error)}).") from None


_COUNTS = ("devices_per_host", "max_hosts", "max_batch_per_device")
_NUMBERS = (
    "price_per_host_hour", "price_per_device_hour", "fixed_price", "startup_s", "network_gbit_per_s", "price_low",
    "price_high", "interruptions_per_hour", "interruptions_low", "interruptions_high",
)  # fmt: skip


def read_price_csv(path: Path, columns: Mapping[str, str] | None = None, max_hosts: int = 1) -> tuple[Machine, ...]:
    """Return the machines of any CSV file of prices, a row each.

    Args:
        path: The file. Its columns have the names of the keys of ``machines.toml``; others are not used.
        columns: The file's names of columns by key, where they differ.
        max_hosts: The most hosts of machines without that column.
    """
    for key in columns or {}:
        if key not in MachineTable.model_fields:
            raise UnknownNameError(f"--column: no key is called '{one_line(key)}'; {_near_key(key)}")
    aliases = {name: key for key, name in (columns or {}).items()}
    file = read_csv_rows(path, "a list of prices", ("name", "device", "devices_per_host", "unit"), aliases)
    if not {"price_per_host_hour", "price_per_device_hour"} & set(file.columns):
        raise PlanningError(
            f"{file.where}: a list of prices has a column price_per_host_hour, price_per_device_hour, or both. Found "
            f"{one_line(', '.join(file.columns), 200)}; name it with --column price_per_host_hour=COLUMN."
        )
    machines = tuple(_priced_machine(row) for row in file.rows)
    check_names(machines, file.where)
    if "max_hosts" in file.columns:
        return machines
    return tuple(replace(machine, max_hosts=max_hosts) for machine in machines)


def _near_key(key: str) -> str:
    return suggest_names(key, MachineTable.model_fields)


def stale_sentence(machines: Sequence[Machine], today: datetime.date) -> str | None:
    """Return a warning about old prices; None if all are fresh."""
    stale = [machine for machine in machines if machine.is_stale(today)]
    if not stale:
        return None
    dates = sorted(machine.date for machine in stale if machine.date is not None)
    undated = len(stale) - len(dates)
    old = f"older than 90 days {len(dates)} of {len(machines)}, the oldest of {dates[0]}" if dates else ""
    without = f"without a date {undated} of {len(machines)}" if undated else ""
    problems = "; ".join(part for part in (old, without) if part)
    return f"Check the prices with the provider before you decide by them: {problems}."


def _explain(error: ValidationError, data: object) -> str:
    """Describe one problem: the machine, the key, the rule, the value."""
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
    """Return the text of a ``machines.toml`` with these machines."""
    return "\n".join(_machine_toml(machine) for machine in machines)


def _machine_toml(machine: Machine) -> str:
    values = asdict(machine) | {"price_per_host_hour": round(machine.price_per_host_hour, 6)}
    lines = [toml_line(key, value) for key, value in values.items() if value]  # others are the defaults
    return "\n".join(["[[machine]]", *lines, ""])
