"""``batchscale calibrate``: how long a step takes on this machine, for ``batchscale plan``."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchscale.errors import RunError, SpecError

if TYPE_CHECKING:
    from batchscale.spec.experiment import Experiment
    from batchscale.trainers.probing import TrainerTiming
    from batchscale.training.calibration import StepTiming

VERSION = 1
FEWEST_REPETITIONS = 3
COLUMNS = ("batch size", "step time", "90 % interval", "examples/s", "compiling")


def calibrate(
    workload: Annotated[
        str, typer.Argument(metavar="EXPERIMENT", help="An experiment file, or DATASET/MODEL/OPTIMIZER.")
    ],
    batch_sizes: Annotated[str | None, typer.Option(help="Such as 8,64,512. Default: the experiment's.")] = None,
    devices: Annotated[int, typer.Option(min=1, help="Devices of this host that share the batch.")] = 1,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The CSV file of step times; rows are added to one that is there.")
    ] = Path("step_times.csv"),
    repetitions: Annotated[int, typer.Option(min=3, help="How often each step time is measured.")] = 10,
    seconds: Annotated[float, typer.Option(help="How long each repetition takes, about.")] = 0.5,
    precision: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    data_dir: Annotated[Path | None, typer.Option(help="Where the data sets are.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Time the step of a workload or trainer on this machine, warm-up apart, and add it to a file of step times."""
    from batchscale.cli.output import print_json, print_table
    from batchscale.planning.step_times import append_step_times
    from batchscale.workers.environment import check_devices, offer_devices
    from batchscale.workloads.models.declaration import check_precision

    own = _read_trainer(workload)
    if own is not None:
        rows = _measure_trainer(own, batch_sizes, Timed(repetitions, seconds, "", devices))
    else:
        precision = check_precision("--precision", precision)
        num_devices = check_devices(devices)
        offer_devices(num_devices)
        rows = _measure(workload, batch_sizes, Timed(repetitions, seconds, precision, num_devices), data_dir)
    append_step_times(out, rows)
    if json_:
        print_json({"version": VERSION, "step_times": rows})
        return
    print_table(COLUMNS, [_cells(row) for row in rows], right=(0, 1, 2, 3, 4))
    typer.echo(str(out))


@dataclass(frozen=True)
class Timed:
    """How a step is timed: so often, for so long, in this precision, on so many devices."""

    repetitions: int
    seconds: float
    precision: str
    devices: int


def _read_trainer(target: str) -> "Experiment | None":
    """The experiment file, if a trainer of the user's own trains it."""
    from batchscale.spec.file import read_experiment

    experiment = read_experiment(Path(target)) if target.endswith(".toml") else None
    return experiment if experiment is not None and experiment.trainer is not None else None


def _measure_trainer(experiment: "Experiment", sizes: str | None, timed: Timed) -> list[dict[str, Any]]:
    from batchscale.cli.plan_inputs import parse_sizes
    from batchscale.run.preflight import make_checked_plan
    from batchscale.spec.batch_sizes import BatchSizes
    from batchscale.trainers.probing import time_trainer

    trainer = experiment.trainer
    assert trainer is not None
    if timed.repetitions < FEWEST_REPETITIONS or not 0 < timed.seconds <= 3600:
        raise RunError(
            f"A step is timed at least {FEWEST_REPETITIONS} times, for a positive number of seconds each. Found "
            f"{timed.repetitions} times {timed.seconds:g} s."
        )
    wanted = parse_sizes(sizes)
    if wanted:
        experiment = replace(experiment, batch_sizes=BatchSizes(tuple(sorted(set(wanted)))))
    plan = make_checked_plan(experiment, None)
    timings = [time_trainer(trainer, study, timed.repetitions, timed.seconds) for study in plan.studies]
    if any(timing.with_evaluation for timing in timings):
        typer.echo(
            "Notice: the trainer does not tell its own times (train_s), so these step times hold its evaluations.",
            err=True,
        )
    return [_trainer_row(str(experiment.workload.name), timing, timed) for timing in timings]


def _trainer_row(workload: str, timing: "TrainerTiming", timed: Timed) -> dict[str, Any]:
    from batchscale.machine import name_processor

    device = name_processor() if timing.hardware is None else timing.hardware.device_kind
    found = Measured(timing.batch_size, timing.step_times_s, timing.steps_per_repetition, timing.warm_up_s, device)
    return _row(workload, found, timed, None)


def _measure(target: str, sizes: str | None, timed: Timed, data_dir: Path | None) -> list[dict[str, Any]]:
    from batchscale.cli.plan_inputs import parse_sizes
    from batchscale.spec.experiment import WorkloadSpec
    from batchscale.spec.file import read_experiment
    from batchscale.spec.workload_name import WorkloadName
    from batchscale.training.calibration import Effort, OutOfMemoryError, time_steps
    from batchscale.training.devices import describe_hardware
    from batchscale.training.settings import EngineSettings
    from batchscale.workloads.registry import get_workload

    experiment = read_experiment(Path(target)) if target.endswith(".toml") else None
    spec = WorkloadSpec(WorkloadName.parse(target)) if experiment is None else experiment.workload
    spec = replace(spec, model_options={**spec.model_options, "precision": timed.precision})
    loaded = get_workload(spec, data_dir)
    wanted = parse_sizes(sizes)
    if not wanted and experiment is not None:
        wanted = experiment.batch_sizes.resolve(loaded.dataset.num_train_examples)
    if not wanted:
        raise SpecError("calibrate needs --batch-sizes such as 8,64,512 where no experiment file says them.")
    settings = EngineSettings(devices=timed.devices)
    effort = Effort(timed.repetitions, timed.seconds)
    timings: list[StepTiming] = []
    limit = None
    for size in sorted(set(wanted)):
        try:
            timings.append(time_steps(loaded, size, effort, settings))
        except OutOfMemoryError as error:
            if not timings:
                raise
            limit = timings[-1].batch_size
            typer.echo(f"Notice: {error}", err=True)
            break
    device = describe_hardware().device_kind
    found = [
        Measured(one.batch_size, one.step_times_s, one.steps_per_repetition, one.compile_s, device) for one in timings
    ]
    return [_row(str(spec.name), one, timed, limit) for one in found]


@dataclass(frozen=True)
class Measured:
    """Step times of a batch size on a device; ``compile_s`` is what came before them."""

    batch_size: int
    step_times_s: tuple[float, ...]
    steps_per_repetition: int
    compile_s: float
    device: str


def _row(workload: str, timing: Measured, timed: Timed, limit: int | None) -> dict[str, Any]:
    import datetime

    from batchscale import __version__
    from batchscale.machine import count_cores, name_host
    from batchscale.planning.curve import mean_interval

    mean, low, high = mean_interval(timing.step_times_s)
    return {
        "workload": workload,
        "device": timing.device,
        "hosts": 1,
        "devices_per_host": timed.devices,
        "batch_size": timing.batch_size,
        "step_time_s": mean,
        "step_time_low_s": low,
        "step_time_high_s": high,
        "repetitions": len(timing.step_times_s),
        "steps_per_repetition": timing.steps_per_repetition,
        "compile_s": timing.compile_s,
        "precision": timed.precision or None,
        "max_batch_per_device": None if limit is None else limit // timed.devices,
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
