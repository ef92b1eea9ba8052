"""``batchscale predict``: the critical batch size from little training, beside what the whole study would cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.prediction_output import predictions_json, print_predictions
from batchscale.cli.selection import DATA_DIR_HELP, JSON_HELP, WORKLOAD_HELP

if TYPE_CHECKING:
    from batchscale.adaptive.preparation import PredictSettings
    from batchscale.prediction.prediction import Prediction
    from batchscale.run.signals import StopFlag
    from batchscale.spec.plan import Plan

TRIALS = 8


def predict(
    experiment: Annotated[
        Path, typer.Argument(metavar="EXPERIMENT", help="The experiment file (TOML), or records of a study.")
    ],
    methods: Annotated[
        str | None, typer.Option(metavar="NAMES", help="The methods, such as atlas,branched. Default: all.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of what is trained. Default: the file's name with -prediction.")
    ] = None,
    tuned: Annotated[
        Path | None, typer.Option(metavar="RECORDS", help="Start from the best trial of these records; search nothing.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="The batch size of the tuned trial. Default: a small one of the file.")
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="The most trials of each small search.")] = TRIALS,
    goal: Annotated[str | None, typer.Option(help="For records: the goal. Default: the goal of the studies.")] = None,
    workload: Annotated[str | None, typer.Option(help=f"For records: {WORKLOAD_HELP}")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="The number of worker processes. Default: one per core.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help=DATA_DIR_HELP)] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Predict the critical batch size from little training.

    Each method states its interval, its cost and its assumption, or why it cannot predict. What it trains is stored:
    the same command trains nothing again, and continues after any stop (exit code 75).
    """
    from batchscale.adaptive.predict import check_methods

    names = check_methods(_split(methods))
    if _is_records(experiment):
        for option, given in (
            ("--out", out), ("--tuned", tuned), ("--batch-size", batch_size), ("--workers", workers),
            ("--data-dir", data_dir), ("--trials", None if trials == TRIALS else trials),
        ):  # fmt: skip
            if given is not None:
                _reject(option, "an experiment file; records train nothing", experiment)
        _predict_records(experiment, names if methods else (), goal, workload, as_json=json_)
        return
    for option, value in (("--goal", goal), ("--workload", workload)):
        if value is not None:
            _reject(option, "records; an experiment file has its own", experiment)
    from batchscale.adaptive.preparation import PredictSettings
    from batchscale.adaptive.stored_predictions import SUFFIX
    from batchscale.analysis.units import SizeUnit
    from batchscale.run.preflight import make_checked_plan
    from batchscale.run.settings import RunSettings
    from batchscale.run.signals import StopFlag
    from batchscale.spec.file import read_experiment

    with StopFlag() as stop:
        plan = make_checked_plan(read_experiment(experiment), data_dir)
        settings = PredictSettings(RunSettings(workers=workers, data_dir=data_dir), batch_size, trials, tuned)
        folder = out or Path(f"{experiment.stem}{SUFFIX}")
        predictions = predict_plan(plan, folder, names, settings, stop, quiet=json_)
    name, unit = plan.experiment.workload.name, SizeUnit(plan.studies[0].tokens_per_example)
    if json_:
        from batchscale.cli.output import print_json

        print_json(predictions_json(name, plan.experiment.goal, predictions, plan.trial_steps, unit, folder))
        return
    typer.echo(f"{name}, until {plan.experiment.goal}\n")
    print_predictions(predictions, plan.trial_steps, unit)
    if folder.is_dir():
        typer.echo(f"\nTrained: {folder}; the same command trains nothing again")
    typer.echo(f"Measure: batchscale run {experiment} --out RECORDS")


def predict_plan(
    plan: "Plan", folder: Path, names: Sequence[str], settings: "PredictSettings", stop: "StopFlag", *, quiet: bool
) -> "list[Prediction]":
    """Predict with progress on standard error; a stop exits with the code for "run the command again"."""
    from batchscale.adaptive.predict import predict as predict_all
    from batchscale.cli.progress import make_display
    from batchscale.errors import REQUEUE

    display = make_display(quiet)
    try:
        return predict_all(plan, folder, names, settings, display.show, stop)
    except KeyboardInterrupt:
        typer.echo("Stopped; nothing is lost, and the same command continues.", err=True)
        raise typer.Exit(REQUEUE) from None
    finally:
        display.close()


def _split(methods: str | None) -> list[str]:
    return [] if methods is None else [name.strip() for name in methods.split(",")]


def _is_records(path: Path) -> bool:
    from batchscale.records.table.files import is_table

    return path.is_dir() or is_table(path)


def _reject(option: str, meant: str, path: Path) -> None:
    from batchscale.errors import SpecError, one_line

    raise SpecError(f"{option} is for {meant}. Found {one_line(path, 300)}; leave it out.")


def _predict_records(
    path: Path, methods: Sequence[str], goal: str | None, workload: str | None, *, as_json: bool
) -> None:
    from batchscale.adaptive.predict import predict_from_records
    from batchscale.analysis.units import unit_of
    from batchscale.cli.output import print_json
    from batchscale.cli.selection import open_records, select_goal, select_workloads
    from batchscale.errors import AnalysisError

    records = open_records(path)
    names = select_workloads(records, workload)
    if len(names) > 1:
        raise AnalysisError(f"--workload must select one workload. Found {', '.join(map(str, names[:6]))}.")
    name, unit = names[0], unit_of(records.workload(names[0]))
    asked = select_goal(records, name, goal)
    predictions = predict_from_records(records, name, asked, methods)
    if as_json:
        print_json(predictions_json(name, asked, predictions, None, unit, None))
        return
    typer.echo(f"{name}, until {asked}\n")
    print_predictions(predictions, None, unit)
