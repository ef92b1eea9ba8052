"""Machines from the CSV files of SkyPilot's price catalogue, or of any other list of prices, read by column name.

The columns of its files are in different orders, and some clouds price accelerator and host in separate rows; a
machine is then the sum of both, and the host must be named. Nothing of the catalogue comes with this package.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

from batchscale.csv_lines import read_csv_lines
from batchscale.errors import PlanningError, one_line, suggest_names
from batchscale.planning.csv_rows import MAX_BYTES, CsvRow, read_csv_rows
from batchscale.planning.devices import nearest_devices
from batchscale.planning.machines import Machine, choose_machines, read_price_csv

COLUMNS = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region")
MAX_FILES = 200
MOST_INTERRUPTIONS = 1000


@dataclass(frozen=True)
class CatalogueFilter:
    """The rows that become machines.

    ``host`` is the instance type to which accelerators are attached where they are priced apart. ``spot`` takes the
    spot price. ``max_hosts`` is written to every machine. ``interruptions`` is the range of a spot host and hour.
    """

    accelerators: tuple[str, ...] = ()
    region: str | None = None
    host: str | None = None
    spot: bool = False
    max_hosts: int = 1
    interruptions: tuple[float, float] | None = None


def parse_range(text: str, option: str) -> tuple[float, float]:
    """Parse two numbers from a text such as 0.02:0.2.

    >>> parse_range("0.02:0.2", "--interruptions")
    (0.02, 0.2)
    """
    low, separator, high = text.partition(":")
    try:
        ends = float(low), float(high)
    except ValueError:
        ends = math.nan, math.nan
    if not (separator and 0 <= ends[0] <= ends[1] < MOST_INTERRUPTIONS):
        raise PlanningError(
            f"{option} must be LOW:HIGH, two numbers from 0 to {MOST_INTERRUPTIONS:,}, the smaller first, such as "
            f"0.02:0.2. Found {one_line(repr(text))}."
        )
    return ends


def import_prices(
    path: Path, selection: CatalogueFilter, columns: Mapping[str, str] | None = None
) -> tuple[tuple[Machine, ...], tuple[str, ...]]:
    """Return the machines of SkyPilot's catalogue, or of any other CSV file of prices, and notes on rows left out.

    A file is the catalogue's if it has the catalogue's columns and no others are named.
    """
    if path.is_dir() or (not columns and set(COLUMNS) <= set(_header(path))):
        return import_catalogue(path, selection)
    machines = read_price_csv(path, columns, selection.max_hosts)
    if selection.host is not None:
        raise PlanningError("--host is for SkyPilot's catalogue. Found another file of prices; leave it out.")
    regions = [m for m in machines if selection.region in (None, m.region)]
    chosen = [m for m in regions if m.spot or not selection.spot]
    return choose_machines(chosen, (), selection.accelerators), ()


def _header(path: Path) -> list[str]:
    lines = read_csv_lines(path, "a list of prices", MAX_BYTES, PlanningError)
    return [name.strip() for name in next(lines, (0, []))[1]]


def import_catalogue(path: Path, selection: CatalogueFilter) -> tuple[tuple[Machine, ...], tuple[str, ...]]:
    """Return the machines of a catalogue file, or of all files of a folder, and notes on rows left out.

    There is one machine per instance type: of several regions the cheapest is taken, and the machine names it.
    """
    machines: list[Machine] = []
    notes: list[str] = []
    for file in _files(path):
        file_machines, left_out = _from_file(file, selection)
        machines += file_machines
        notes += left_out
    if not machines:
        raise PlanningError(
            f"{one_line(path, 300)}: no row of the catalogue matches{_why(notes)}. Give other --accelerator, "
            "--region or --host."
        )
    return tuple(_with_ranges(machine, machines, selection) for machine in _cheapest_per_name(machines)), tuple(notes)


def _with_ranges(machine: Machine, machines: Sequence[Machine], selection: CatalogueFilter) -> Machine:
    """Return a spot machine with the range of its prices over regions, and that of interruptions."""
    if not selection.spot:
        return machine
    prices = [other.price_per_host_hour for other in machines if other.name == machine.name]
    ranged = replace(machine, price_low=min(prices), price_high=max(prices)) if len(set(prices)) > 1 else machine
    if selection.interruptions is None:
        return ranged
    low, high = selection.interruptions
    middle = math.sqrt(low * high)
    return replace(ranged, interruptions_per_hour=middle, interruptions_low=low, interruptions_high=high)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(path.rglob("*.csv"))
        vms = [file for file in files if file.stem.endswith("vms")] or files
        if not vms or len(vms) > MAX_FILES:
            raise PlanningError(
                f"{one_line(path, 300)}: a catalogue folder has between 1 and {MAX_FILES} CSV files. Found {len(vms)}."
            )
        return vms
    return [path]


def _from_file(path: Path, selection: CatalogueFilter) -> tuple[list[Machine], list[str]]:
    rows = read_csv_rows(path, "a catalogue of prices", COLUMNS).rows
    price = "SpotPrice" if selection.spot else "Price"
    names = {row.text("AcceleratorName") for row in rows} - {""}
    selected = {name for requested in selection.accelerators for name in nearest_devices(requested, names)}
    here = [row for row in rows if selection.region in (None, row.text("Region")) and row.text(price)]
    matching = [row for row in here if row.text("AcceleratorName") in (selected if selection.accelerators else names)]
    if selection.accelerators and not matching:
        requested = selection.accelerators
        return [], [f"{path.name}: no {', '.join(requested)} here; {suggest_names(requested[0], names)}"]
    hosts = {
        (row.text("Region"), row.text("InstanceType")): row
        for row in here
        if row.text("InstanceType") and not row.text("AcceleratorName")
    }
    machines: list[Machine] = []
    notes: list[str] = []
    when = datetime.fromtimestamp(path.stat().st_mtime, UTC).date()
    for row in matching:
        cloud = row.text("cloud") or path.parent.name
        if row.text("InstanceType"):
            machines.append(_machine(row, None, selection, _Source(cloud, path.name, when)))
            continue
        host = hosts.get((row.text("Region"), selection.host or ""))
        if host is None:
            notes.append(_apart(row, selection))
        else:
            machines.append(_machine(row, host, selection, _Source(cloud, path.name, when)))
    return machines, list(dict.fromkeys(notes))


@dataclass(frozen=True)
class _Source:
    cloud: str
    file: str
    date: date


def _apart(row: CsvRow, selection: CatalogueFilter) -> str:
    name, region = one_line(row.text("AcceleratorName"), 40), one_line(row.text("Region"), 40)
    if selection.host is None:
        return f"{name} in {region} is priced without its host; name the host with --host to have both counted."
    return f"{name} in {region}: the catalogue has no price of a host {one_line(selection.host, 40)} there."


def _machine(row: CsvRow, host: CsvRow | None, selection: CatalogueFilter, source: _Source) -> Machine:
    column = "SpotPrice" if selection.spot else "Price"
    count = row.whole("AcceleratorCount") or 1
    price = row.number(column)
    assert price is not None
    device = one_line(row.text("AcceleratorName"), 60)
    name = one_line(row.text("InstanceType"), 80)
    if host is not None:
        price += host.number(column) or 0.0
        name = f"{one_line(host.text('InstanceType'), 60)} + {count} {device}"
    return Machine(
        name=f"{one_line(source.cloud, 30)} {name}{' spot' if selection.spot else ''}",
        device=device,
        devices_per_host=count,
        max_hosts=selection.max_hosts,
        price_per_host_hour=price,
        unit="USD",
        region=one_line(row.text("Region"), 60) or None,
        spot=selection.spot,
        source=f"SkyPilot catalogue, {one_line(source.file, 60)}",
        date=source.date,
    )


def _cheapest_per_name(machines: Iterable[Machine]) -> list[Machine]:
    """The cheapest of each name."""
    best: dict[str, Machine] = {}
    for machine in machines:
        if machine.name not in best or machine.price_per_host_hour < best[machine.name].price_per_host_hour:
            best[machine.name] = machine
    return list(best.values())


def _why(notes: Sequence[str]) -> str:
    return f": {notes[0].rstrip('.')}" if notes else ""
