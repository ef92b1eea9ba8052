"""The list prices that come with the package: a small table, each row with its region, source page and date.

They are what the providers' public pages listed on that date, before any discount, and are said to be stale when older
than 90 days. For anything that matters write your own ``machines.toml``, or import a catalogue.
"""

from dataclasses import replace
from datetime import date
from pathlib import Path

from batchscale.errors import PlanningError
from batchscale.planning.csv_rows import CsvRow, read_csv_rows
from batchscale.planning.machines import Machine, MachineTable, check_names

PRICE_LIST = Path(__file__).with_name("prices.csv")
COLUMNS = (
    "name",
    "device",
    "devices_per_host",
    "price_per_host_hour",
    "price_per_device_hour",
    "unit",
    "region",
    "source",
    "date",
)


def read_price_list(max_hosts: int = 1) -> tuple[Machine, ...]:
    """The machines of the shipped list, each with up to so many hosts."""
    file = read_csv_rows(PRICE_LIST, "the list of prices", COLUMNS)
    machines = tuple(replace(_machine(row), max_hosts=max_hosts) for row in file.rows)
    check_names(machines, file.where)
    return machines


def _machine(row: CsvRow) -> Machine:
    table = MachineTable(
        name=row.text("name"),
        device=row.text("device"),
        devices_per_host=row.required("devices_per_host"),
        price_per_host_hour=row.number("price_per_host_hour"),
        price_per_device_hour=row.number("price_per_device_hour"),
        unit=row.text("unit"),
        region=row.text("region"),
        source=row.text("source"),
        date=date.fromisoformat(row.text("date")),
    )
    return table.machine()


def stale_sentence(machines: tuple[Machine, ...], today: date) -> str | None:
    """What to say of old prices; None if all are fresh."""
    stale = [machine for machine in machines if machine.is_stale(today)]
    if not stale:
        return None
    dates = sorted(machine.date for machine in stale if machine.date is not None)
    undated = len(stale) - len(dates)
    old = f"{len(dates)} of {len(machines)} prices are older than 90 days, the oldest of {dates[0]}" if dates else ""
    without = f"{undated} of {len(machines)} prices have no date" if undated else ""
    said = " and ".join(part for part in (old, without) if part)
    return f"{said}: check them with the provider before you decide by them."


def check_max_hosts(hosts: int | None) -> None:
    """Refuses a number of hosts that is none."""
    if hosts is not None and hosts < 1:
        raise PlanningError(f"--max-hosts is at least 1. Found {hosts}.")
