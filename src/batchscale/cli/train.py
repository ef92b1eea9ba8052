"""``batchscale train``: one trial with given metaparameters."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli import clusters
from batchscale.cli.run import GRADIENT_NOISE_HELP, MIRROR_HELP, print_cache_problem
from batchscale.cli.selection import DATA_DIR_HELP, parse_batch_size
from batchscale.cli.train_output import MeasurementPrinter
from batchscale.errors import REQUEUE, RunError, SpecError, one_line, suggest_names

if TYPE_CHECKING:
    from batchscale.run.signals import StopFlag
    from batchscale.run.single_study import Resume
    from batchscale.run.single_trial import SingleTrial, SingleTrialResult, TrialStart
    from batchscale.spec.batch_sizes import BatchSizes
    from batchscale.spec.durations import EvaluationPlan
    from batchscale.spec.experiment import WorkloadSpec
    from batchscale.spec.goal import Goal
    from batchscale.spec.horizon_free import Averaging, Branches
    from batchscale.study.trial import Row, TrialProgress
    from batchscale.workers.multihost.hosts import Hosts
    from batchscale.workloads.workload import Workload


def train(
    workload: Annotated[str, typer.Argument(help="The workload, dataset/model/optimizer, or an experiment file.")],
    batch_size: Annotated[
        str, typer.Option("--batch-size", "-b", metavar="N", help='Examples per optimizer step, or "16k tokens".')
    ],
    steps: Annotated[str, typer.Option(metavar="N", help='The number of optimizer steps, or "20M tokens".')],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A metaparameter, such as learning_rate=0.1. May be repeated.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="The seed of initialisation, data order and dropout.")
    ] = 0,
    evaluate_every: Annotated[
        str | None,
        typer.Option(metavar="N", help="The steps, or tokens, between measurements. Default: 20 measurements."),
    ] = None,
    early_stop: Annotated[
        str | None,
        typer.Option(help='Stop when a goal is reached, such as "train/cross_entropy_error < 0.5". Default: never.'),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the records to write. Default: write none.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Refuse to start a trial: --out must hold one to continue.")
    ] = False,
    new_trial: Annotated[
        bool, typer.Option("--new-trial", help="Start another trial, even if --out holds this one.")
    ] = False,
    precision: Annotated[
        str | None, typer.Option(help="The precision: float32 or bfloat16. Default: the model's own.")
    ] = None,
    gradient_noise: Annotated[bool, typer.Option("--gradient-noise", help=GRADIENT_NOISE_HELP)] = False,
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
    """Train one trial and print its measurements.

    The same command continues the trial that --out holds, also with more --steps, and trains nothing if it is finished.
    Other metaparameters, or another seed, make another trial. Exit code 75 means that it was stopped before the end.
    """
    from batchscale.run.signals import StopFlag
    from batchscale.training.settings import EngineSettings
    from batchscale.workers.environment import check_devices, offer_devices

    hosts_described = clusters.look_up(cluster)
    with clusters.reporting(hosts_described):
        how = _parse_resume(out, mirror, resume=resume, new_trial=new_trial)
        num_devices = check_devices(_parse_devices(devices))
        offer_devices(num_devices)
        target = _read_target(workload, data_dir, precision)
        if gradient_noise:
            noise = target.evaluation.gradient_noise or True
            target = replace(target, evaluation=replace(target.evaluation, gradient_noise=noise))
        spec, parameters = target.spec, target.fixed | _parse_settings(set_ or [])
        request = TrainRequest(
            target,
            parse_batch_size(batch_size),
            Duration.parse(steps, "--steps"),
            parameters,
            seed,
            None if evaluate_every is None else Duration.parse(evaluate_every, "--evaluate-every"),
            early_stop,
        )
    print_cache_problem()
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
        "--new-trial": new_trial,
        "--devices": num_devices,
        "--exact": exact,
        "--microbatch": microbatch,
        "--gradient-noise": target.evaluation.gradient_noise,
        "averaging": target.averaging,
        "branches": target.branches,
    }
    with clusters.together(hosts_described, facts) as hosts:
        loaded, trial = request.load(data_dir)
        trial = replace(trial, out=out, resume=how, settings=settings)
        writes = hosts is None or hosts.is_chief
        printer = MeasurementPrinter(trial.steps, out, as_json=json_, quiet=not writes)
        with StopFlag() as stop:
            outcome = _train_mirrored(loaded, trial, printer, mirror if writes else None, profile, stop, hosts)
        printer.close(outcome.stop_reason, outcome.steps)
        if outcome.idle_devices and writes:
            _print_note(
                f"{outcome.idle_devices} device(s) were idle: a batch of {trial.batch_size} cannot be split into so "
                "many parts of whole ghost batches. Pass fewer --devices, or a larger --batch-size."
            )
    if outcome.stop_reason == "stopped":
        typer.echo("Stopped. Run the same command again to continue." if out else "Stopped.", err=True)
        raise typer.Exit(REQUEUE)


def _train_mirrored(
    workload: "Workload",
    trial: "SingleTrial",
    printer: MeasurementPrinter,
    mirror: str | None,
    profile: Path | None,
    stop: "StopFlag",
    hosts: "Hosts | None",
) -> "SingleTrialResult":
    """Train a trial, print its measurements, and update its mirror after each."""
    from batchscale.run.mirroring import mirrored
    from batchscale.run.single_trial import train_single
    from batchscale.training.compilation import profiled

    with profiled(profile), mirrored(trial.out, mirror, _print_note) as update_mirror:

        def show(row: "Row", progress: "TrialProgress") -> None:
            printer.show(row, progress.timing.get("examples_per_s"))
            update_mirror()

        def announce(start: "TrialStart") -> None:
            printer.begin(start)
            update_mirror()

        return train_single(workload, trial, show, lambda: stop.is_set, hosts, announce)


def _print_note(text: str) -> None:
    typer.echo(text, err=True)


@dataclass(frozen=True)
class Duration:
    """A number of steps or of tokens."""

    amount: int
    in_tokens: bool

    @classmethod
    def parse(cls, text: str, option: str) -> "Duration":
        """Parse the value of an option."""
        from batchscale.spec.durations import MAX_STEPS
        from batchscale.spec.tokens import names_tokens, parse_duration

        if names_tokens(text):
            return cls(parse_duration(text), in_tokens=True)
        if text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= MAX_STEPS:
            return cls(int(text), in_tokens=False)
        raise SpecError(
            f'{option} must be a whole number of steps from 1 to {MAX_STEPS:,}, or of tokens such as "20M tokens". '
            f"Found {one_line(repr(text))}."
        )

    def steps(self, batch_size: int, tokens_per_example: int | None) -> int:
        """Return the steps, rounded up."""
        from batchscale.spec.durations import Unit, to_steps

        unit = Unit.TOKENS if self.in_tokens else Unit.STEPS
        return to_steps(self.amount, unit, batch_size, tokens_per_example=tokens_per_example)


@dataclass(frozen=True)
class Target:
    """The workload to train, and the settings of its experiment file, if there is one."""

    spec: "WorkloadSpec"
    evaluation: "EvaluationPlan"
    fixed: dict[str, float]
    tokens_per_example: int | None = None
    goal: "Goal | None" = None
    averaging: "Averaging | None" = None
    branches: "Branches | None" = None


@dataclass(frozen=True)
class TrainRequest:
    """The trial that the options describe; what depends on the workload is checked when that is loaded."""

    target: Target
    batch_size: "BatchSizes"
    steps: Duration
    parameters: dict[str, float]
    seed: int
    evaluate_every: Duration | None
    early_stop: str | None

    def load(self, data_dir: Path | None) -> "tuple[Workload, SingleTrial]":
        """Return the loaded workload and the trial, checked against it."""
        from batchscale.run.single_trial import SingleTrial
        from batchscale.workloads.registry import get_workload

        spec, every = self.target.spec, self.evaluate_every
        workload = get_workload(spec, data_dir)
        tokens = self.target.tokens_per_example or workload.dataset.tokens_per_example
        (batch_size,) = self.batch_size.resolve(workload.dataset.num_train_examples, tokens)
        evaluation = self.target.evaluation.in_steps(batch_size, tokens)
        averaging, examples = self.target.averaging, workload.dataset.num_train_examples
        half_lives = averaging.steps(batch_size, examples, tokens) if averaging else ()
        options: list[object] = [spec.dataset_options, spec.model_options, spec.optimizer_options, spec.schedule]
        options += [half_lives] if half_lives else []
        options += [asdict(self.target.branches)] if self.target.branches else []
        options += [{"gradient_noise": evaluation.gradient_noise}] if evaluation.gradient_noise else []
        return workload, SingleTrial(
            batch_size=batch_size,
            steps=self.steps.steps(batch_size, tokens),
            parameters=self.parameters,
            evaluation=_with_every(evaluation, workload, every.steps(batch_size, tokens) if every else None),
            seed=self.seed,
            early_stop=_parse_early_stop(self.early_stop, workload),
            workload_options=json.dumps([str(spec.name), *options], sort_keys=True, default=str),
            tokens_per_example=tokens,
            goal=self.target.goal if half_lives else None,
            half_lives=half_lives,
            branches=self.target.branches,
        )


def _parse_resume(out: Path | None, mirror: str | None, *, resume: bool, new_trial: bool) -> "Resume":
    from batchscale.run.single_study import Resume

    for name, purpose, is_given in (
        ("--mirror", "the folder to copy", mirror is not None),
        ("--resume", "the folder with the trial to continue", resume),
        ("--new-trial", "the folder of the trials", new_trial),
    ):
        if is_given and out is None:
            raise RunError(f"{name} needs --out, {purpose}. Found no --out.")
    if resume and new_trial:
        raise RunError("--resume continues a trial and --new-trial starts another. Found both; remove one.")
    return Resume.REQUIRED if resume else Resume.NEVER if new_trial else Resume.IF_THERE


def _read_target(text: str, data_dir: Path | None, precision: str | None) -> Target:
    from batchscale.run.preflight import find_facts
    from batchscale.spec.durations import EvaluationPlan
    from batchscale.spec.experiment import WorkloadSpec
    from batchscale.spec.file import read_experiment
    from batchscale.spec.workload_name import WorkloadName
    from batchscale.workloads.models.declaration import check_precision

    if text.endswith(".toml"):
        experiment = read_experiment(Path(text))
        if experiment.workload.file is not None:
            find_facts(experiment, data_dir)  # loads the user's file in another process first
        fixed, tokens = dict(experiment.search.fixed), experiment.tokens_per_example
        target = Target(experiment.workload, experiment.evaluation, fixed, tokens, experiment.goal)
        target = replace(target, averaging=experiment.averaging, branches=experiment.branches)
    else:
        target = Target(WorkloadSpec(WorkloadName.parse(text)), EvaluationPlan(count=20), {})
    if precision is not None:
        options = {**target.spec.model_options, "precision": check_precision("--precision", precision)}
        target = replace(target, spec=replace(target.spec, model_options=options))
    return target


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


def _with_every(plan: "EvaluationPlan", workload: "Workload", every: int | None) -> "EvaluationPlan":
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
