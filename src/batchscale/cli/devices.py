"""``batchscale devices``: the peak numbers of devices, for estimated step times."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.selection import JSON_HELP

if TYPE_CHECKING:
    from batchscale.planning.accelerators import Accelerator

VERSION = 1
HEADINGS = ("device", "TFLOP/s", "memory", "bandwidth", "link", "network", "date", "source")


def devices(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A CSV file of further devices to check. Default: the shipped table."),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure this machine's device: a matrix product and a copy.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the devices to this CSV file, for 'plan --devices'.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """List or measure the peak numbers of devices.

    Arithmetic per precision, memory, links and network, each with source and date.
    """
    from batchscale.cli.output import print_json, print_table
    from batchscale.planning.accelerators import accelerators_csv, read_accelerators
    from batchscale.records.output_file import write_output

    listed = (_measured(),) if measure else read_accelerators(path)
    if out is not None:
        write_output(out, accelerators_csv(listed))
        typer.echo(str(out), err=json_)
    if json_:
        print_json({"version": VERSION, "devices": [_object(row) for row in listed]})
    elif out is None:
        print_table(HEADINGS, [_cells(row) for row in listed], right=(2, 3))


def _measured() -> "Accelerator":
    import datetime

    from batchscale.planning.accelerators import Accelerator
    from batchscale.training.device_peak import measure_peak

    peak = measure_peak()
    today = datetime.datetime.now(datetime.UTC).date()
    return Accelerator(
        peak.device, peak.flops, peak.memory_bytes, peak.bytes_per_s, source="measured by batchscale", date=today
    )


def _object(row: "Accelerator") -> dict[str, object]:
    return vars(row) | {"date": None if row.date is None else row.date.isoformat()}


def _cells(row: "Accelerator") -> tuple[object, ...]:
    from batchscale.formatting import size

    peaks = ", ".join(f"{name} {flops / 1e12:.4g}" for name, flops in row.peak_flops.items())
    link = "" if row.link_bytes_per_s is None else f"{row.link} {size(row.link_bytes_per_s)}/s".strip()
    network = "" if row.network_bytes_per_s is None else f"{row.network_bytes_per_s * 8 / 1e9:,.0f} Gbit/s"
    date = None if row.date is None else row.date.isoformat()
    memory, bandwidth = size(row.memory_bytes), f"{size(row.memory_bytes_per_s)}/s"
    return row.device, peaks, memory, bandwidth, link, network, date, row.source
