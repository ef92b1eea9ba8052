"""``batchscale train``: one trial with given metaparameters."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli import clusters
from batchscale.cli.run import MIRROR_HELP, print_cache_problem
from batchscale.cli.selection import DATA_DIR_HELP
from batchscale.errors import REQUEUE, RunError, SpecError, one_line, suggest_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchscale.run.single_trial import Show
    from batchscale.spec.durations import EvaluationPlan
    from batchscale.spec.experiment import WorkloadSpec
    from batchscale.spec.goal import Goal
    from batchscale.study.trial import Row, TrialProgress
    from batchscale.workloads.workload import Workload

VERSION = 1


def train(
    workload: Annotated[str, typer.Argument(help="The workload, dataset/model/optimizer, or an experiment file.")],
    batch_size: Annotated[int, typer.Option("--batch-size", "-b", min=1, help="Examples per optimizer step.")],
    steps: Annotated[int, typer.Option(min=1, max=2**31 - 1, help="The number of optimizer steps.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A metaparameter, such as learning_rate=0.1. May be repeated.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="The seed of initialisation, data order and dropout.")
    ] = 0,
    evaluate_every: Annotated[
        int | None, typer.Option(min=1, help="The number of steps between measurements. Default: 20 measurements.")
    ] = None,
    early_stop: Annotated[
        str | None,
        typer.Option(help='Stop when a goal is reached, such as "train/cross_entropy_error < 0.5". Default: never.'),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the records to write. Default: write none.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the trial in --out, also with more --steps.")
    ] = False,
    precision: Annotated[
        str | None, typer.Option(help="The precision: float32 or bfloat16. Default: the model's own.")
    ] = None,
    microbatch: Annotated[
        int | None, typer.Option(min=1, help="The number of examples per gradient. Default: as many as fit.")
    ] = None,
    devices: Annotated[
        str, typer.Option(metavar="N|all", help="The number of devices of this host to train on, or all.")
    ] = "1",
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Add gradients in a fixed order, for the same bits on any number of devices."),
    ] = False,
    mirror: Annotated[
        str | None,
        typer.Option(metavar="URL", help=f"{MIRROR_HELP} Default: none."),
    ] = None,
    checkpoint_every: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="The time between checkpoints in --out.")
    ] = 60.0,
    cluster: Annotated[str, typer.Option(help=clusters.HELP)] = "auto",
    data_dir: Annotated[Path | None, typer.Option(help=DATA_DIR_HELP)] = None,
    profile: Annotated[Path | None, typer.Option(help="Write a JAX trace to this folder.")] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON per measurement instead of a table.")
    ] = False,
) -> None:
    """Train one trial and print its measurements."""
    from batchscale.run.mirroring import mirrored
    from batchscale.run.signals import StopFlag
    from batchscale.run.single_trial import SingleTrial, train_single
    from batchscale.training.compilation import profiled
    from batchscale.training.settings import EngineSettings
    from batchscale.workers.environment import check_devices, offer_devices
    from batchscale.workloads.models.declaration import check_precision
    from batchscale.workloads.registry import get_workload

    if mirror is not None and out is None:
        raise RunError("--mirror needs --out, the folder to copy. Found no --out.")
    if resume and out is None:
        raise RunError("--resume needs --out, the folder with the trial to continue. Found no --out.")
    num_devices = check_devices(_parse_devices(devices))
    offer_devices(num_devices)
    spec, evaluation, fixed = _read_target(workload, data_dir)
    if precision is not None:
        options = {**spec.model_options, "precision": check_precision("--precision", precision)}
        spec = replace(spec, model_options=options)
    print_cache_problem()
    parameters = fixed | _parse_settings(set_ or [])
    settings = EngineSettings(
        microbatch=microbatch, devices=num_devices, exact=exact, checkpoint_interval_s=checkpoint_every
    )
    facts = {
        "the workload": (spec.name, spec.dataset_options, spec.model_options, spec.optimizer_options, spec.schedule),
        "--batch-size": batch_size,
        "--steps": steps,
        "--set": parameters,
        "--seed": seed,
        "--early-stop": early_stop,
        "--evaluate-every": evaluate_every,
        "--resume": resume,
        "--devices": num_devices,
        "--exact": exact,
        "--microbatch": microbatch,
    }
    with clusters.together(clusters.look_up(cluster), facts) as hosts:
        loaded = get_workload(spec, data_dir)
        trial = SingleTrial(
            batch_size=_checked_size(loaded, batch_size),
            steps=steps,
            parameters=parameters,
            evaluation=_with_every(evaluation, loaded, evaluate_every),
            seed=seed,
            early_stop=_parse_early_stop(early_stop, loaded),
            out=out,
            resume=resume,
            settings=settings,
        )
        table = MeasurementPrinter(steps, json_, quiet=hosts is not None and not hosts.is_chief)
        writes = hosts is None or hosts.is_chief
        with (
            profiled(profile),
            StopFlag() as stop,
            mirrored(out if writes else None, mirror, _print_note) as update_mirror,
        ):
            outcome = train_single(
                loaded, trial, _show_and_mirror(table.show, update_mirror), lambda: stop.is_set, hosts
            )
        table.close(outcome.stop_reason, outcome.steps)
        if outcome.idle_devices and writes:
            _print_note(
                f"{outcome.idle_devices} device(s) were idle: a batch of {batch_size} cannot be split into so many "
                "parts of whole ghost batches. Pass fewer --devices, or a larger --batch-size."
            )
    if outcome.stop_reason == "stopped":
        typer.echo("Stopped. Run the same command with --resume to continue." if out else "Stopped.", err=True)
        raise typer.Exit(REQUEUE)


def _show_and_mirror(show: "Show", update_mirror: "Callable[[], None]") -> "Show":
    def show_and_mirror(row: "Row", progress: "TrialProgress") -> None:
        show(row, progress)
        update_mirror()

    return show_and_mirror


def _print_note(text: str) -> None:
    typer.echo(text, err=True)


class MeasurementPrinter:
    """Prints measurements as the lines of a table or of JSON; a quiet one prints nothing, because the chief does."""

    def __init__(self, steps: int, as_json: bool, quiet: bool = False) -> None:
        self._steps, self._as_json, self._quiet = steps, as_json, quiet
        self._width = max(4, len(f"{steps:,}"))
        self._names: tuple[str, ...] = ()

    def show(self, row: "Row", progress: "TrialProgress") -> None:
        """Print one measurement."""
        step, values = row
        if self._quiet:
            return
        if self._as_json:
            from batchscale.cli.output import print_json_line

            print_json_line({"version": VERSION, "step": step, **values})
            return
        if not self._names:
            self._names = tuple(values)
            header = "  ".join(["step".rjust(self._width), *self._names])
            typer.echo(typer.style(header, bold=True) if sys.stdout.isatty() else header)
        cells = [f"{values[name]:.6g}".rjust(len(name)) for name in self._names]
        rate = progress.timing.get("examples_per_s")
        speed = f"  {rate:,.0f} examples/s" if rate else ""
        typer.echo("  ".join([f"{step:,}".rjust(self._width), *cells]) + speed)

    def close(self, reason: str, step: int) -> None:
        """Print the end of the trial."""
        texts = {
            "budget": "Trained to the step budget",
            "goal": "Early stop reached",
            "diverged": "Training diverged (INFEASIBLE)",
            "stopped": "Stopped",
        }
        typer.echo(f"{texts[reason]} at step {step:,} of {self._steps:,}.", err=self._as_json)


def _read_target(text: str, data_dir: Path | None) -> "tuple[WorkloadSpec, EvaluationPlan, dict[str, float]]":
    from batchscale.run.preflight import find_facts
    from batchscale.spec.durations import EvaluationPlan
    from batchscale.spec.experiment import WorkloadSpec
    from batchscale.spec.file import read_experiment
    from batchscale.spec.workload_name import WorkloadName

    if text.endswith(".toml"):
        experiment = read_experiment(Path(text))
        if experiment.workload.file is not None:
            find_facts(experiment, data_dir)  # loads the user's file in another process first
        return experiment.workload, experiment.evaluation, dict(experiment.search.fixed)
    return WorkloadSpec(WorkloadName.parse(text)), EvaluationPlan(count=20), {}


def _parse_settings(texts: list[str]) -> dict[str, float]:
    from batchscale.spec.space import check_value

    values: dict[str, float] = {}
    for text in texts:
        name, sign, number = text.partition("=")
        try:
            values[name.strip()] = float(number)
        except ValueError:
            sign = ""
        if not sign:
            raise SpecError(f"--set must be name=number, such as learning_rate=0.1. Found {one_line(repr(text))}.")
        check_value(name.strip(), values[name.strip()], " in --set")
    return values


def _parse_devices(text: str) -> int | None:
    """Parse the number of devices; None for all."""
    if text == "all":
        return None
    if not (text.isascii() and text.isdigit() and 1 <= len(text) <= 6 and int(text) >= 1):
        raise SpecError(f"--devices must be a whole number of at least 1, or 'all'. Found {one_line(repr(text))}.")
    return int(text)


def _checked_size(workload: "Workload", batch_size: int) -> int:
    from batchscale.spec.experiment import BatchSizes

    BatchSizes.parse(batch_size).resolve(workload.dataset.num_train_examples)
    return batch_size


def _with_every(plan: "EvaluationPlan", workload: "Workload", every: int | None) -> "EvaluationPlan":
    from dataclasses import replace

    examples = {split: count for split, count in plan.examples.items() if split in workload.dataset.splits}
    return replace(plan, examples=examples, every=every or plan.every)


def _parse_early_stop(text: str | None, workload: "Workload") -> "Goal | None":
    from batchscale.spec.goal import Goal

    if text is None:
        return None
    goal = Goal.parse(text)
    metrics = {metric.name: metric for metric in workload.metrics}
    if goal.metric_name not in metrics or goal.split not in workload.dataset.splits:
        valid = [f"{split}/{name}" for split in workload.dataset.splits for name in metrics]
        raise SpecError(
            f"--early-stop must name a measured metric. Found '{goal.metric}'; {suggest_names(goal.metric, valid)}"
        )
    return goal
