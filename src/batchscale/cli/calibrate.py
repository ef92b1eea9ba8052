"""``batchscale calibrate``: the time of a training step on this machine, for ``batchscale plan``."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchscale.cli.selection import DATA_DIR_HELP, JSON_HELP, print_notice
from batchscale.errors import RunError, SpecError

if TYPE_CHECKING:
    from batchscale.spec.batch_sizes import BatchSizes
    from batchscale.spec.experiment import Experiment
    from batchscale.trainers.probing import TrainerTiming
    from batchscale.workloads.workload import Workload

VERSION = 1
FEWEST_REPETITIONS = 3
COLUMNS = ("batch size", "step time", "90 % interval", "examples/s", "compiling")


def calibrate(
    workload: Annotated[
        str, typer.Argument(metavar="EXPERIMENT", help="An experiment file, or a workload, dataset/model/optimizer.")
    ],
    batch_sizes: Annotated[
        str | None, typer.Option(help="The batch sizes, such as 8,64,512, or in tokens. Default: as in the experiment.")
    ] = None,
    devices: Annotated[int, typer.Option(min=1, help="The number of devices of this host that share the batch.")] = 1,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The CSV file of step times. Rows are added to an existing file.")
    ] = Path("step_times.csv"),
    repetitions: Annotated[int, typer.Option(min=3, help="The number of measurements of each step time.")] = 10,
    seconds: Annotated[float, typer.Option(help="The time of each measurement, about.")] = 0.5,
    precision: Annotated[str, typer.Option(help="The precision: float32 or bfloat16.")] = "float32",
    work: Annotated[
        Path | None,
        typer.Option(help="Write operations, bytes and memory of a step to this CSV file instead of timing it."),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help=DATA_DIR_HELP)] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Measure the time of a training step on this machine.

    Works for workloads and for your own trainer, leaves out the warm-up, and adds the times to a CSV file.
    """
    from batchscale.cli.output import print_json, print_table
    from batchscale.planning.step_times import append_step_times
    from batchscale.workers.environment import check_devices, offer_devices
    from batchscale.workloads.models.declaration import check_precision

    experiment = _read_trainer(workload)
    if work is not None:
        if experiment is not None:
            raise SpecError(
                "--work counts workloads of batchscale. Found a training script; count its work in the script, as in "
                "docs/estimates.md, 'Count the work of your own script'."
            )
        precision = check_precision("--precision", precision)
        _write_work(work, _load(workload, batch_sizes, precision, data_dir), precision, json_)
        return
    if experiment is not None:
        measured = _measure_trainer(experiment, batch_sizes, TimingOptions(repetitions, seconds, "", devices))
    else:
        precision = check_precision("--precision", precision)
        num_devices = check_devices(devices)
        offer_devices(num_devices)
        options = TimingOptions(repetitions, seconds, precision, num_devices)
        measured = _measure(workload, batch_sizes, options, data_dir)
    rows: list[dict[str, Any]] = []
    for row in measured:  # each is written as soon as it is measured
        replaced = int(bool(rows) and rows[-1]["batch_size"] == row["batch_size"])
        rows[len(rows) - replaced :] = [row]
        append_step_times(out, [row], replaced)
        _show(f"  {1000 * row['step_time_s']:,.4g} ms per step, written to {out}")
    if json_:
        print_json({"version": VERSION, "step_times": rows})
        return
    print_table(COLUMNS, [_cells(row) for row in rows], right=(0, 1, 2, 3, 4))
    typer.echo(str(out))


@dataclass(frozen=True)
class TimingOptions:
    """The number and length of measurements, the precision and the number of devices."""

    repetitions: int
    seconds: float
    precision: str
    devices: int


def _read_trainer(target: str) -> "Experiment | None":
    """Read the experiment file; None if it has no [trainer] table."""
    from batchscale.spec.file import read_experiment

    experiment = read_experiment(Path(target)) if target.endswith(".toml") else None
    return experiment if experiment is not None and experiment.trainer is not None else None


def _show(line: str) -> None:
    typer.echo(line, err=True)


def _parse_sizes(text: str) -> "BatchSizes":
    """Parse the batch sizes of the option: examples, or all in tokens."""
    from batchscale.cli.plan_inputs import parse_sizes
    from batchscale.spec.batch_sizes import BatchSizes
    from batchscale.spec.tokens import names_tokens, split_sizes

    return BatchSizes.parse(split_sizes(text) if names_tokens(text) else parse_sizes(text))


def _measure_trainer(experiment: "Experiment", sizes: str | None, options: TimingOptions) -> Iterator[dict[str, Any]]:
    from batchscale.run.preflight import make_checked_plan
    from batchscale.trainers.probing import time_trainer

    trainer = experiment.trainer
    assert trainer is not None
    if options.repetitions < FEWEST_REPETITIONS or not 0 < options.seconds <= 3600:
        raise RunError(
            f"--repetitions must be at least {FEWEST_REPETITIONS}, and --seconds between 0 and 3600. Found "
            f"{options.repetitions} and {options.seconds:g}."
        )
    if sizes is not None:
        experiment = replace(experiment, batch_sizes=_parse_sizes(sizes))
    plan = make_checked_plan(experiment, None)
    with_evaluation = False
    for study in plan.studies:
        timing = time_trainer(trainer, study, options.repetitions, options.seconds, show=_show)
        with_evaluation |= timing.with_evaluation
        yield _trainer_row(str(experiment.workload.name), timing, options)
    if with_evaluation:
        print_notice("the trainer does not report its training time (train_s): these times include its evaluations.")


def _trainer_row(workload: str, timing: "TrainerTiming", options: TimingOptions) -> dict[str, Any]:
    from batchscale.machine import name_processor

    device = name_processor() if timing.hardware is None else timing.hardware.device_kind
    measured = Measured(timing.batch_size, timing.step_times_s, timing.steps_per_repetition, timing.warm_up_s, device)
    return _row(workload, measured, options, None)


def _load(
    target: str, sizes: str | None, precision: str, data_dir: Path | None
) -> "tuple[str, Workload, tuple[int, ...]]":
    """Return the name, the workload and the batch sizes of a workload by name or of an experiment file."""
    from batchscale.spec.experiment import WorkloadSpec
    from batchscale.spec.file import read_experiment
    from batchscale.spec.workload_name import WorkloadName
    from batchscale.workloads.registry import get_workload

    experiment = read_experiment(Path(target)) if target.endswith(".toml") else None
    spec = WorkloadSpec(WorkloadName.parse(target)) if experiment is None else experiment.workload
    spec = replace(spec, model_options={**spec.model_options, "precision": precision})
    loaded = get_workload(spec, data_dir)
    if sizes is None and experiment is None:
        raise SpecError("calibrate needs --batch-sizes such as 8,64,512, or an experiment file. Found neither.")
    planned = experiment.batch_sizes if experiment is not None and sizes is None else _parse_sizes(sizes or "")
    tokens = (experiment.tokens_per_example if experiment else None) or loaded.dataset.tokens_per_example
    return str(spec.name), loaded, tuple(planned.resolve(loaded.dataset.num_train_examples, tokens))


def _write_work(path: Path, loaded: "tuple[str, Workload, tuple[int, ...]]", precision: str, as_json: bool) -> None:
    """Count the work of a step at the smallest and the largest batch size, and write both rows."""
    import polars as pl

    from batchscale.cli.output import print_json, print_table
    from batchscale.formatting import size as size_text
    from batchscale.planning.work import WORK_COLUMNS
    from batchscale.records.output_file import write_output
    from batchscale.training.step_work import workload_work

    name, workload, batch_sizes = loaded
    rows: list[dict[str, Any]] = []
    for size in sorted({min(batch_sizes), max(batch_sizes)}):
        _show(f"Counting the work of batch size {size:,} …")
        counted, parameters, kind = workload_work(workload, size)
        values = (name, kind, precision, size, counted.flops, counted.bytes_moved, parameters, counted.memory_bytes)
        rows.append(dict(zip(WORK_COLUMNS, values, strict=True)))
    write_output(path, pl.DataFrame(rows).write_csv())
    if as_json:
        print_json({"version": VERSION, "work": rows})
        return
    cells = [
        (*list(row.values())[:4], f"{row['flops']:.4g}", size_text(row["bytes"]), row["parameters"],
         size_text(row["memory_bytes"]))
        for row in rows
    ]  # fmt: skip
    print_table(WORK_COLUMNS, cells, right=(3, 4, 5, 6, 7))
    typer.echo(str(path))


def _measure(target: str, sizes: str | None, options: TimingOptions, data_dir: Path | None) -> Iterator[dict[str, Any]]:
    """Yield a row per batch size; if the next one does not fit into memory, the last again with that limit."""
    from batchscale.training.calibration import Effort, OutOfMemoryError, time_steps
    from batchscale.training.devices import describe_hardware
    from batchscale.training.settings import EngineSettings

    name, loaded, batch_sizes = _load(target, sizes, options.precision, data_dir)
    settings = EngineSettings(devices=options.devices)
    effort = Effort(options.repetitions, options.seconds)
    device = describe_hardware().device_kind
    measured: Measured | None = None
    for size in batch_sizes:
        _show(f"Timing batch size {size:,} …")
        try:
            timing = time_steps(loaded, size, effort, settings)
        except OutOfMemoryError as error:
            if measured is None:
                raise
            print_notice(str(error))
            yield _row(name, measured, options, measured.batch_size)
            return
        measured = Measured(size, timing.step_times_s, timing.steps_per_repetition, timing.compile_s, device)
        yield _row(name, measured, options, None)


@dataclass(frozen=True)
class Measured:
    """Step times of a batch size on a device; ``compile_s`` is the time before the first one."""

    batch_size: int
    step_times_s: tuple[float, ...]
    steps_per_repetition: int
    compile_s: float
    device: str


def _row(workload: str, timing: Measured, options: TimingOptions, limit: int | None) -> dict[str, Any]:
    import datetime

    from batchscale import __version__
    from batchscale.machine import count_cores, name_host
    from batchscale.planning.curve import mean_interval

    mean, low, high = mean_interval(timing.step_times_s)
    return {
        "workload": workload,
        "device": timing.device,
        "hosts": 1,
        "devices_per_host": options.devices,
        "batch_size": timing.batch_size,
        "step_time_s": mean,
        "step_time_low_s": low,
        "step_time_high_s": high,
        "repetitions": len(timing.step_times_s),
        "steps_per_repetition": timing.steps_per_repetition,
        "compile_s": timing.compile_s,
        "precision": options.precision or None,
        "max_batch_per_device": None if limit is None else limit // options.devices,
        "machine": f"{name_host()}, {count_cores()} cores",
        "code_version": __version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    low, high = row["step_time_low_s"], row["step_time_high_s"]
    return (
        row["batch_size"],
        f"{1000 * row['step_time_s']:,.4g} ms",
        f"{1000 * low:,.4g} to {1000 * high:,.4g} ms",
        f"{row['batch_size'] / row['step_time_s']:,.0f}",
        f"{row['compile_s']:.1f} s",
    )
