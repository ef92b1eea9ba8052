"""``batchscale machines``: the machines of a file, of the shipped price list or of a catalogue."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.selection import JSON_HELP, print_notice
from batchscale.errors import PlanningError, one_line

if TYPE_CHECKING:
    from batchscale.planning.machines import Machine

VERSION = 1
COLUMNS = ("machine", "device", "per host", "hosts", "per host-hour", "unit", "region", "date", "source")


def machines(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A machines.toml to check. Default: the shipped price list."),
    ] = None,
    catalogue: Annotated[
        Path | None,
        typer.Option("--import", help="Import SkyPilot's catalogue (~/.sky/catalogs), or any CSV file of prices."),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="The imported file's column of a key, such as device=GPU. May be repeated."),
    ] = None,
    accelerator: Annotated[
        list[str] | None,
        typer.Option(help="Import only this accelerator. Default: all. May be repeated."),
    ] = None,
    region: Annotated[str | None, typer.Option(help="Import only this region. Default: all.")] = None,
    host: Annotated[
        str | None, typer.Option(help="The host type of imported machines whose accelerators are priced apart.")
    ] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Import spot prices.")] = False,
    interruptions: Annotated[
        str | None, typer.Option(help="The range of interruptions of a spot host and hour, such as 0.02:0.2.")
    ] = None,
    max_hosts: Annotated[int, typer.Option(min=1, help="The most hosts of imported machines.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the machines to this machines.toml.")] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """List machines and their prices, or import a price list.

    Checks the file and marks prices that are old.
    """
    import datetime

    from batchscale.cli.output import print_json, print_table
    from batchscale.planning.machines import machines_toml, read_machines, read_price_list, stale_sentence

    if catalogue is None and (column or interruptions):
        raise PlanningError("--column and --interruptions are for --import. Found no --import FILE.")
    if path is not None and catalogue is not None:
        raise PlanningError("FILE and --import exclude each other. Found both; pass one of them.")
    notes: tuple[str, ...] = ()
    if catalogue is not None:
        from batchscale.planning.catalogue import CatalogueFilter, import_prices, parse_range

        rates = None if interruptions is None else parse_range(interruptions, "--interruptions")
        if rates is not None and not spot:
            raise PlanningError("--interruptions is for spot machines. Found no --spot; add it.")
        selection = CatalogueFilter(tuple(accelerator or ()), region, host, spot, max_hosts, rates)
        listed, notes = import_prices(catalogue, selection, _columns(column or []))
    else:
        listed = read_machines(path) if path is not None else read_price_list(max_hosts)
    today = datetime.datetime.now(datetime.UTC).date()
    for note in notes[:8]:
        print_notice(note)
    if out is not None:
        from batchscale.records.output_file import write_output

        write_output(out, machines_toml(listed))
        typer.echo(str(out), err=json_)
    if json_:
        print_json({"version": VERSION, "machines": [_object(machine, machine.is_stale(today)) for machine in listed]})
    elif out is None:
        print_table(COLUMNS, [_row(machine, machine.is_stale(today)) for machine in listed], right=(2, 3, 4))
    stale = stale_sentence(listed, today)
    if stale is not None:
        print_notice(stale)


def _columns(texts: list[str]) -> dict[str, str]:
    """Return the columns of --column by key."""
    columns = {}
    for text in texts:
        key, separator, name = text.partition("=")
        if not (key and separator and name):
            raise PlanningError(f"--column must be KEY=COLUMN, such as device=GPU. Found {one_line(repr(text))}.")
        columns[key] = name
    return columns


def _row(machine: "Machine", stale: bool) -> tuple[object, ...]:
    from batchscale.planning.sentences import machine_text

    date = None if machine.date is None else machine.date.isoformat() + (" (stale)" if stale else "")
    price = f"{machine.price_per_host_hour:,.4f}"
    return (
        machine_text(machine.name, machine.spot),
        machine.device,
        machine.devices_per_host,
        machine.max_hosts,
        price,
        machine.unit,
        machine.region,
        date or ("no date (stale)" if stale else None),
        machine.source,
    )


def _object(machine: "Machine", stale: bool) -> dict[str, object]:
    values = vars(machine) | {"date": None if machine.date is None else machine.date.isoformat()}
    return {**values, "stale": stale}
