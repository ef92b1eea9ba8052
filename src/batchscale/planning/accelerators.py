"""Peak numbers of devices: arithmetic per precision, memory, links and network, from the shipped table or a file.

The shipped table, ``accelerators.csv``, has what the makers' data sheets state, without sparsity, at the date of each
row. A file of a user has the same columns; its rows come before those of the table.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from batchscale.errors import PlanningError, UnknownNameError, one_line, suggest_names
from batchscale.planning.csv_rows import CsvRow, read_csv_rows
from batchscale.planning.devices import is_processor, nearest_devices

TABLE = Path(__file__).with_name("accelerators.csv")
PRECISIONS = ("float32", "tf32", "float16", "bfloat16", "float8")
NEEDED = ("device", "memory_gb", "memory_gb_per_s")
COLUMNS = (
    "device", *(f"{precision}_tflops" for precision in PRECISIONS), "memory_gb", "memory_gb_per_s", "link",
    "link_gb_per_s", "link_joins_hosts", "network_gbit_per_s", "source", "date",
)  # fmt: skip
MODULES_FROM = 8  # devices of a host
_LARGEST = {"tflops": 1e5, "memory_gb": 1e4, "memory_gb_per_s": 1e5, "link_gb_per_s": 1e4, "network_gbit_per_s": 1e5}
"""The largest plausible value of each kind of column: above it a number is in another unit."""
_UNITS = {
    "tflops": "TFLOP/s (1e12 operations per second)",
    "memory_gb": "GB (1e9 bytes; 1 GiB is 1.074 GB)",
    "memory_gb_per_s": "GB/s",
    "link_gb_per_s": "GB/s in one direction",
    "network_gbit_per_s": "Gbit/s of a host",
}


@dataclass(frozen=True)
class Accelerator:
    """One device. Numbers are in operations, bytes and seconds.

    Attributes:
        device: Its name.
        peak_flops: Operations per second by precision, without sparsity.
        memory_bytes: Size of its memory.
        memory_bytes_per_s: Bandwidth of its memory.
        link: Name of the connection to the other devices of a host.
        link_bytes_per_s: Bandwidth of that connection in one direction; None: not known, one device only.
        link_joins_hosts: True if the connection continues across hosts, as in a TPU slice.
        network_bytes_per_s: Bandwidth between hosts, of a whole host; None: not known, one host only.
        source: The data sheet.
        date: Its day.
    """

    device: str
    peak_flops: dict[str, float]
    memory_bytes: float
    memory_bytes_per_s: float
    link: str = ""
    link_bytes_per_s: float | None = None
    link_joins_hosts: bool = False
    network_bytes_per_s: float | None = None
    source: str = ""
    date: datetime.date | None = None

    def peak(self, precision: str) -> float | None:
        """Return the operations per second in a precision; None if the device has none.

        Float16 and bfloat16 stand for each other, for a program that trains in one does so in the other. TF32 stands
        for float32 only if it is requested.
        """
        others = {"float16": "bfloat16", "bfloat16": "float16"}
        return self.peak_flops.get(precision) or self.peak_flops.get(others.get(precision, ""))


def read_accelerators(path: Path | None = None) -> tuple[Accelerator, ...]:
    """Return the devices of a file of the user, then those of the shipped table.

    Raises:
        PlanningError: a value is missing, not positive or in another unit; with the line.
    """
    own = () if path is None else _read(path)
    names = [accelerator.device.casefold() for accelerator in own]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PlanningError(f"{one_line(path, 300)}: each device must have one row. Found '{one_line(twice)}' twice.")
    return own + tuple(device for device in _read(TABLE) if device.device.casefold() not in names)


def _read(path: Path) -> tuple[Accelerator, ...]:
    file = read_csv_rows(path, "a table of devices", NEEDED)
    unknown = [name for name in file.columns if name not in COLUMNS]
    if unknown:
        raise PlanningError(
            f"{file.where}: unknown column '{one_line(unknown[0])}'; {suggest_names(unknown[0], COLUMNS)}"
        )
    return tuple(_accelerator(row) for row in file.rows)


def _accelerator(row: CsvRow) -> Accelerator:
    peaks = {
        precision: 1e12 * value
        for precision in PRECISIONS
        if (value := _checked(row, f"{precision}_tflops", "tflops")) is not None
    }
    memory, bandwidth = _checked(row, "memory_gb"), _checked(row, "memory_gb_per_s")
    if not row.text("device") or not peaks or memory is None or bandwidth is None:
        raise PlanningError(
            f"{row.place}: a device has a name, the TFLOP/s of at least one precision, memory_gb and memory_gb_per_s. "
            "Found an empty cell."
        )
    link, network = _checked(row, "link_gb_per_s"), _checked(row, "network_gbit_per_s")
    return Accelerator(
        device=one_line(row.text("device"), 60),
        peak_flops=peaks,
        memory_bytes=1e9 * memory,
        memory_bytes_per_s=1e9 * bandwidth,
        link=one_line(row.text("link"), 60),
        link_bytes_per_s=None if link is None else 1e9 * link,
        link_joins_hosts=bool(row.flag("link_joins_hosts")),
        network_bytes_per_s=None if network is None else 1e9 / 8 * network,
        source=one_line(row.text("source"), 200),
        date=_date(row),
    )


def _checked(row: CsvRow, name: str, kind: str | None = None) -> float | None:
    value = row.number(name)
    column = kind or name
    if value is not None and value > _LARGEST[column]:
        raise PlanningError(
            f"{row.place}: {name} must be in {_UNITS[column]}, at most {_LARGEST[column]:,.0f}. Found "
            f"{one_line(row.text(name))}, which looks like another unit; convert it."
        )
    return value


def _date(row: CsvRow) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(row.text("date")) if row.text("date") else None
    except ValueError:
        raise PlanningError(
            f"{row.place}: date must be a day such as 2026-11-01. Found {one_line(repr(row.text('date')))}."
        ) from None


def find_accelerator(device: str, accelerators: Sequence[Accelerator], devices_per_host: int = 1) -> Accelerator | None:
    """Return the row of a device by any of its spellings; None if there is none.

    Of several rows that match ("A100" with 40 and 80 GB, "H100" as a module and as a card) those of the least memory
    are taken, for an estimate must not promise what the machine may not have. Of these, hosts of eight devices and
    more have the fastest link, because they are built with modules; others the slowest.
    """
    names = nearest_devices(device, [accelerator.device for accelerator in accelerators])
    matching = [accelerator for accelerator in accelerators if accelerator.device in names]
    sign = -1 if devices_per_host >= MODULES_FROM else 1
    return min(matching, key=lambda row: (row.memory_bytes, sign * (row.link_bytes_per_s or 0.0)), default=None)


def require_accelerator(device: str, accelerators: Sequence[Accelerator]) -> Accelerator:
    """Return the row of a device.

    Raises:
        UnknownNameError: no row matches; with the nearest names.
    """
    accelerator = find_accelerator(device, accelerators)
    if accelerator is None:
        measure = " Processors are measured: 'batchscale devices --measure'." if is_processor(device) else ""
        names = [row.device for row in accelerators]
        raise UnknownNameError(
            f"No device is called '{one_line(device, 60)}'; {suggest_names(device, names)} Add it with --devices FILE."
            f"{measure}"
        )
    return accelerator


def accelerators_csv(accelerators: Sequence[Accelerator]) -> str:
    """Return the text of a table of devices, as ``read_accelerators`` reads it."""
    rows = []
    for row in accelerators:
        peaks = {f"{name}_tflops": flops / 1e12 for name, flops in row.peak_flops.items()}
        network = row.network_bytes_per_s
        values = peaks | {
            "device": row.device,
            "memory_gb": row.memory_bytes / 1e9,
            "memory_gb_per_s": row.memory_bytes_per_s / 1e9,
            "link": row.link or None,
            "link_gb_per_s": None if row.link_bytes_per_s is None else row.link_bytes_per_s / 1e9,
            "link_joins_hosts": row.link_joins_hosts,
            "network_gbit_per_s": None if network is None else network * 8 / 1e9,
            "source": row.source or None,
            "date": row.date,
        }
        rows.append({name: values.get(name) for name in COLUMNS})
    return pl.DataFrame(rows, infer_schema_length=None).write_csv(float_precision=6)
