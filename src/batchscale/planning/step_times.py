"""Measured step times by device, hosts, devices per host and batch size, from a file or from records.

Holds their values, their file format and the merging of repeated measurements. ``step_model`` predicts what was not
measured.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from batchscale.errors import PlanningError, one_line
from batchscale.planning.csv_rows import CsvRow, read_csv_rows
from batchscale.planning.curve import mean_interval
from batchscale.planning.devices import device_key
from batchscale.records.frames import Records
from batchscale.records.metadata.columns import METADATA
from batchscale.records.output_file import is_regular_or_missing, write_output
from batchscale.spec.workload_name import WorkloadName

COLUMN_ALIASES = {
    "gpu": "device",
    "vms": "hosts",
    "gpus_per_vm": "devices_per_host",
    "seconds_per_step": "step_time_s",
    "time_s": "seconds",
    "reached_goal": "reached",
    "step_ceiling": "give_up",
}
"""Other names of the columns of runs and step times."""

NEEDED = ("device", "hosts", "devices_per_host", "batch_size", "step_time_s")

STEP_TIME_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "workload": pl.String,
    "device": pl.String,
    "hosts": pl.Int64,
    "devices_per_host": pl.Int64,
    "batch_size": pl.Int64,
    "step_time_s": pl.Float64,
    "step_time_low_s": pl.Float64,
    "step_time_high_s": pl.Float64,
    "repetitions": pl.Int64,
    "steps_per_repetition": pl.Int64,
    "compile_s": pl.Float64,
    "precision": pl.String,
    "max_batch_per_device": pl.Int64,
    "machine": pl.String,  # the host's name and cores, for people
    "code_version": pl.String,
    "date": pl.String,
}
"""The columns of the file that ``batchscale calibrate`` writes."""


@dataclass(frozen=True)
class StepTime:
    """The seconds of one optimizer step on a number of devices.

    ``low`` and ``high`` are the 90 % interval, if the step was repeated. ``max_batch_per_device`` is the largest share
    of a batch that fits into the memory of a device.
    """

    device: str
    hosts: int
    devices_per_host: int
    batch_size: int
    step_time_s: float
    low: float | None = None
    high: float | None = None
    workload: str | None = None
    max_batch_per_device: int | None = None

    @property
    def devices(self) -> int:
        """Return the devices over all hosts."""
        return self.hosts * self.devices_per_host

    @property
    def per_device_batch(self) -> int:
        """Return the examples of the device that has the most."""
        return -(-self.batch_size // self.devices)

    @property
    def place(self) -> tuple[str, int, int, int]:
        """Return the key that repeated measurements share."""
        return device_key(self.device), self.hosts, self.devices_per_host, self.batch_size


def read_step_times(path: Path) -> tuple[StepTime, ...]:
    """Return the measurements of a CSV file, a row each; ``merge_step_times`` joins repeated ones.

    Columns ``NEEDED``, and any of step_time_low_s, step_time_high_s, workload, max_batch_per_device.
    """
    file = read_csv_rows(path, "a table of step times", NEEDED, COLUMN_ALIASES)
    return tuple(_from_row(row) for row in file.rows)


def _from_row(row: CsvRow) -> StepTime:
    seconds = row.number("step_time_s")
    if seconds is None or not row.text("device"):
        raise PlanningError(f"{row.place}: device and step_time_s are needed in every row. Found an empty cell.")
    low, high = row.number("step_time_low_s"), row.number("step_time_high_s")
    if (low is not None and low > seconds) or (high is not None and high < seconds):
        raise PlanningError(
            f"{row.place}: step_time_s lies between step_time_low_s and step_time_high_s. Found {seconds:g} outside "
            f"{low} to {high}."
        )
    return StepTime(
        device=one_line(row.text("device")),
        hosts=row.required("hosts"),
        devices_per_host=row.required("devices_per_host"),
        batch_size=row.required("batch_size"),
        step_time_s=seconds,
        low=low,
        high=high,
        workload=one_line(row.text("workload")) or None,
        max_batch_per_device=row.whole("max_batch_per_device"),
    )


def append_step_times(path: Path, rows: Sequence[Mapping[str, object]], replaced: int = 0) -> None:
    """Add measurements to a file of ``STEP_TIME_SCHEMA``, in place of its last ``replaced`` ones, or create it.

    The file is replaced whole.

    Raises:
        PlanningError: the file has other columns.
    """
    new = pl.DataFrame(list(rows), schema=STEP_TIME_SCHEMA)
    old = ""
    if path.exists() and is_regular_or_missing(path):
        file = read_csv_rows(path, "a table of step times", NEEDED)
        if file.columns != tuple(STEP_TIME_SCHEMA):
            raise PlanningError(
                f"{one_line(path, 300)}: rows are added to a file with the columns of 'batchscale calibrate'. Found "
                f"{one_line(', '.join(file.columns))}; give another --out."
            )
        old = path.read_text(encoding="utf-8-sig")
        old += "" if old.endswith("\n") else "\n"
        lines = old.splitlines(keepends=True)
        old = "".join(lines[: len(lines) - replaced])
    write_output(path, old + new.write_csv(include_header=not old))


def merge_step_times(times: Iterable[StepTime]) -> tuple[StepTime, ...]:
    """Return one measurement per configuration: the mean of several, with the interval of that mean."""
    groups: dict[tuple[str, int, int, int], list[StepTime]] = {}
    for time in times:
        groups.setdefault(time.place, []).append(time)
    return tuple(_merge(group) for _, group in sorted(groups.items()))


def _merge(group: Sequence[StepTime]) -> StepTime:
    first = group[0]
    if len(group) == 1:
        return first
    mean, low, high = mean_interval([time.step_time_s for time in group])
    limits = [time.max_batch_per_device for time in group if time.max_batch_per_device is not None]
    return StepTime(
        first.device,
        first.hosts,
        first.devices_per_host,
        first.batch_size,
        mean,
        low,
        high,
        first.workload,
        min(limits) if limits else None,
    )


def check_workload(times: Iterable[StepTime], workload: str | None) -> None:
    """Raise an error for step times of another workload than the curve's; those without a workload pass."""
    names = sorted({time.workload for time in times if time.workload})
    if len(names) > 1:
        raise PlanningError(f"Step times of one plan must be of one workload. Found {', '.join(names[:5])}.")
    if names and workload is not None and names[0] != workload:
        raise PlanningError(
            f"Step times and curve must be of the same workload. Found step times of {one_line(names[0])} and a curve "
            f"of {one_line(workload)}; calibrate {one_line(workload)}."
        )


def records_step_times(records: Records, workload: WorkloadName) -> tuple[StepTime, ...]:
    """Return the step times of the trials of a workload, one measurement per configuration.

    Trials that were trained several at a time on a device are slower than a trial alone, and are left out.
    """
    selected = records.workload(workload)
    population = dict(selected.studies.select("batch_size", pl.col(METADATA).struct.field("population")).rows())
    seconds_by_place: dict[tuple[str, int, int, int], list[float]] = {}
    facts = pl.col(METADATA).struct
    measured = selected.trials.select(
        facts.field("device_kind"),
        facts.field("num_hosts").fill_null(1),
        facts.field("num_devices").fill_null(1),
        "batch_size",
        facts.field("step_time_s"),
    ).drop_nulls()
    for device, hosts, devices, size, seconds in measured.rows():
        if population.get(size) in (1, None) and seconds > 0:
            seconds_by_place.setdefault((one_line(device), hosts, max(devices // hosts, 1), size), []).append(seconds)
    return tuple(_of_trials(place, seconds, workload) for place, seconds in sorted(seconds_by_place.items()))


def _of_trials(place: tuple[str, int, int, int], seconds: Sequence[float], workload: WorkloadName) -> StepTime:
    """The median of the trials' step times: trials beside each other on a busy machine have outliers, so no mean."""
    low, middle, high = (float(value) for value in np.quantile(seconds, [0.05, 0.5, 0.95]))
    several = len(seconds) > 1
    return StepTime(*place, middle, low if several else None, high if several else None, str(workload))
