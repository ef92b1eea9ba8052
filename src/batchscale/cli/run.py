"""``batchscale run``: from an experiment file to a finished records tree."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli import clusters
from batchscale.cli.progress import run_with_progress
from batchscale.cli.selection import DATA_DIR_HELP
from batchscale.cli.validate import print_decision_notices
from batchscale.errors import REQUEUE, RunError
from batchscale.formatting import count_text, duration, size

if TYPE_CHECKING:
    from batchscale.prediction.prediction import Prediction
    from batchscale.run.session import RunOutcome
    from batchscale.run.settings import RunSettings
    from batchscale.run.signals import StopFlag
    from batchscale.run.status import RunStatus
    from batchscale.spec.experiment import Experiment, RayPlan
    from batchscale.spec.plan import Plan

LARGE_STATES_BYTES = 100e6
RAY_ADDRESS = "RAY_ADDRESS"
"""The variable in which Ray's own tools look for the cluster, and which Ray sets for submitted jobs."""
GRADIENT_NOISE_HELP = "Measure the gradient noise scale too, as evaluation.gradient_noise = true in the file does."
MIRROR_HELP = "A remote path to copy --out to while it runs, and to restore it from."


def _parse_folder(text: str) -> Path:
    if not text.strip():
        raise typer.BadParameter("must be the path of a folder; found an empty text. Is a shell variable not set?")
    return Path(text)


def run(
    file: Annotated[Path, typer.Argument(help="The experiment file (TOML).")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", parser=_parse_folder, metavar="PATH", help="The folder of the records. A run there is continued."
        ),
    ],
    runner: Annotated[
        str,
        typer.Option(help="The place of the workers: local (processes), inline (this process), ray or slurm."),
    ] = "local",
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="The Ray cluster: auto, HOST:PORT or ray://HOST:PORT. Default: RAY_ADDRESS, else auto.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="The number of workers. Default: one per accelerator, else one per core."),
    ] = None,
    cluster: Annotated[str, typer.Option(help=clusters.HELP)] = "none",
    mirror: Annotated[str | None, typer.Option(metavar="URL", help=f"{MIRROR_HELP} Default: none.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help=DATA_DIR_HELP)] = None,
    retries: Annotated[int, typer.Option(min=0, help="The number of retries of a trial whose worker fails.")] = 3,
    retry_incomplete: Annotated[
        bool, typer.Option("--retry-incomplete", help="Train the INCOMPLETE trials of an earlier run again.")
    ] = False,
    keep_states: Annotated[
        float,
        typer.Option(min=0, metavar="GB", help="Disk space for the last states of trials, to train them longer later."),
    ] = 4.0,
    keep_going: Annotated[
        bool,
        typer.Option("--keep-going", help="Continue although the first trials of your script all hang or diverge."),
    ] = False,
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:TARGET",
            help="Mirror trials to mlflow:URI, tensorboard:FOLDER, trackio:PROJECT, wandb:PROJECT or module:Class.",
        ),
    ] = None,
    predict: Annotated[
        bool, typer.Option("--predict", help="Predict the answer first, and show predictions beside it.")
    ] = False,
    gradient_noise: Annotated[bool, typer.Option("--gradient-noise", help=GRADIENT_NOISE_HELP)] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print no progress, and the curve as CSV for 'batchscale fit'.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON object at the end instead of text.")] = False,
) -> None:
    """Run an experiment, or continue it after any stop.

    The same command continues where the run stopped. Exit code 75 means that it was stopped before the end.
    """
    from batchscale.run.early_start import end_early_start, find_fork_server
    from batchscale.run.signals import StopFlag

    with StopFlag() as stop:  # from the very start: loading and checking take a second or two
        if (runner, cluster) != ("local", "none"):
            end_early_start()
        fork_server = find_fork_server(file, out)
        from batchscale.run.settings import RunSettings
        from batchscale.spec.file import read_experiment

        hosts_described = clusters.look_up(cluster)
        with clusters.reporting(hosts_described):
            experiment = read_experiment(file)
            if gradient_noise:
                experiment = experiment.with_gradient_noise()
            address = find_ray_address(runner, ray_address)
            if address is not None:
                from batchscale.workers.ray.address import check_address

                check_address(address)
        with clusters.together_for(hosts_described, experiment) as hosts:
            plan = _make_plan(experiment, data_dir, stop)
            settings = RunSettings(
                runner,
                workers,
                data_dir,
                retries,
                retry_incomplete,
                keep_states,
                hosts,
                address,
                keep_going,
                tuple(track or ()),
                fork_server=fork_server,
            )
            if hosts is not None and not hosts.is_chief:
                outcome = None
                exit_code = _follow(plan, settings, stop)
            else:
                print_cache_problem(plan.experiment.trainer is None)
                if not (quiet or json_):
                    _explain_retraining(plan)
                    print_decision_notices(plan)
                    explain_lost_nodes(settings, plan.experiment.run.ray, out)
                predictions = _predict(plan, out, settings, stop, quiet=quiet or json_) if predict else None
                outcome = _run_mirrored(plan, out, settings, quiet, stop, mirror)
                if hosts is not None:
                    hosts.share("result", str(outcome.result).encode())
    if outcome is None:  # the chief prints the result
        raise typer.Exit(exit_code)
    again = f"batchscale run {file} --out {out}" + (f" --mirror {mirror}" if mirror else "")
    again += f" --runner {runner}" if runner != "local" else ""
    again += f" --workers {workers}" if runner == "slurm" else ""
    again += f" --ray-address {ray_address}" if ray_address else ""
    again += " --gradient-noise" if gradient_noise else ""
    again += "".join(f" --track {text}" for text in track or ()) + (" --predict" if predict else "")
    print_outcome(outcome, out, again, quiet=quiet or json_)
    _check_trainable(outcome, plan)
    from batchscale.cli.run_result import print_beside, print_csv, print_result, result_json

    if json_:
        from batchscale.cli.output import print_json

        print_json(result_json(out, plan, outcome.status, predictions))
        return
    if quiet:
        print_csv(out, plan)
        return
    print_result(out, plan)
    if predictions is not None:
        print_beside(out, plan, predictions)
    typer.echo(f"\nRecords: {out}{_describe_states(out)}\nNext:    batchscale analyze {out}")


def _make_plan(experiment: "Experiment", data_dir: Path | None, stop: "StopFlag") -> "Plan":
    from batchscale.run.preflight import make_checked_plan

    try:
        return make_checked_plan(experiment, data_dir, lambda: stop.is_set)
    except KeyboardInterrupt:
        typer.echo("Stopped before the run began; the same command starts it again.", err=True)
        raise typer.Exit(REQUEUE) from None


def _predict(plan: "Plan", out: Path, settings: "RunSettings", stop: "StopFlag", *, quiet: bool) -> "list[Prediction]":
    """Predict the critical batch size in a folder beside the records, before anything is measured."""
    from batchscale.adaptive.preparation import PredictSettings
    from batchscale.adaptive.stored_predictions import SUFFIX
    from batchscale.cli.predict import predict_plan
    from batchscale.run.settings import RunSettings

    runner = settings.runner if settings.runner == "inline" else "local"  # little is trained: not worth a cluster
    own = RunSettings(runner, settings.workers, settings.data_dir, settings.retries)
    return predict_plan(plan, out.with_name(f"{out.name}{SUFFIX}"), (), PredictSettings(own), stop, quiet=quiet)


def find_ray_address(runner: str, address: str | None) -> str | None:
    """Return the address of the Ray cluster, by default of the one on this machine; None for another runner.

    Raises:
        RunError: an address was given for another runner.
    """
    if runner == "ray":
        return address or os.environ.get(RAY_ADDRESS) or "auto"
    if address is not None:
        raise RunError(f"--ray-address needs --runner ray. Found --runner {runner}; change one or remove the other.")
    return None


def explain_lost_nodes(settings: "RunSettings", plan: "RayPlan", out: Path) -> None:
    """Print before a run on a Ray cluster what happens to the trials of a lost node."""
    if settings.runner != "ray":
        return
    from batchscale.records.tree.layout import RunPaths

    place = f"{RunPaths(out).checkpoints.resolve()} on nodes that see this folder"
    if plan.checkpoints is not None:
        place = f"{plan.checkpoints} on nodes that reach it"
    typer.echo(
        f"Trials of a lost node continue from their last checkpoint in {place}; elsewhere they are trained again from "
        "their seed.",
        err=True,
    )


def _explain_retraining(plan: "Plan") -> None:
    """Print before the run that trials of a script which cannot resume may be trained again."""
    from batchscale.study.stop_rules.rule import find_rule

    trainer = plan.experiment.trainer
    if trainer is not None and not trainer.resume and not find_rule(plan.experiment.stop).by_point:
        typer.echo(
            "This trainer does not resume: a paused trial that does not fit in memory (trainer.max_paused) is trained "
            "again from its seed.",
            err=True,
        )


def print_cache_problem(needed: bool = True) -> None:
    """Print a note if the cache folder cannot be used."""
    from batchscale.workloads.cache import cache_problem

    problem = cache_problem() if needed else None
    if problem is not None:
        typer.echo(f"Note: {problem}", err=True)


def _run_mirrored(
    plan: "Plan", out: Path, settings: "RunSettings", quiet: bool, stop: "StopFlag", mirror: str | None
) -> "RunOutcome":
    """Run a plan and update its mirror after each recorded trial."""
    from batchscale.run.mirroring import mirrored

    num_recorded = -1  # the first status: the run has begun
    with mirrored(out, mirror, lambda text: typer.echo(text, err=True)) as update_mirror:

        def on_change(run_status: "RunStatus") -> None:
            nonlocal num_recorded
            count = sum(study.complete + study.infeasible + study.incomplete for study in run_status.studies)
            if count != num_recorded:
                num_recorded = count
                update_mirror()

        return run_with_progress(plan, out, settings, quiet, stop, on_change)


def _follow(plan: "Plan", settings: "RunSettings", stop: "StopFlag") -> int:
    """Train with the chief of a cluster, which prints the result, and return the exit code."""
    from batchscale.run.loop import RunResult
    from batchscale.run.make_runner import follow_run

    follow_run(plan, settings, stop)
    assert settings.hosts is not None
    return REQUEUE if settings.hosts.share("result", b"").decode() == RunResult.STOPPED else 0


def _check_trainable(outcome: "RunOutcome", plan: "Plan") -> None:
    """Print the studies in which all trials diverged.

    Raises:
        RunError: no study has a COMPLETE trial.
    """
    diverged = [study for study in outcome.status.studies if study.infeasible and not study.complete]
    if not diverged:
        return
    spaces = {study.batch_size: study.space for study in plan.studies}
    searched = ", ".join(
        f"{config.name} {config.min_value:g} to {config.max_value:g}" for config in spaces[diverged[0].batch_size]
    )
    sizes = ", ".join(f"{study.batch_size:,}" for study in diverged)
    trials = sum(study.infeasible for study in diverged)
    text = (
        f"At batch size {sizes} all {trials:,} trials diverged (INFEASIBLE). The search space must contain values that "
        f"train. Found {searched or 'fixed values only'}. Lower learning_rate in [search.space] first, and run with "
        "another --out."
    )
    if any(study.complete for study in outcome.status.studies):
        typer.echo(text, err=True)
    else:
        raise RunError(f"{text} The records of this run are kept.")


def _describe_states(out: Path) -> str:
    """Return a line on the disk space of the kept states, if it is large."""
    from batchscale.records.tree.layout import RunPaths

    folder = RunPaths(out).checkpoints
    num_bytes = sum(path.stat().st_size for path in folder.glob("*/*.npz"))
    if num_bytes < LARGE_STATES_BYTES:
        return ""
    return f"\nStates:  {size(num_bytes)} in {folder}, to train longer from; may be removed"


def print_outcome(outcome: "RunOutcome", out: Path, again: str, *, quiet: bool = False) -> None:
    """Print the end of a run; a quiet one only if something needs attention.

    A stopped run exits with the code for "run the command again".
    """
    from batchscale.run.loop import RunResult

    run_status = outcome.status
    if outcome.result is RunResult.STOPPED:
        done = sum(study.done for study in run_status.studies)
        studies = count_text(len(run_status.studies), "study", "studies")
        typer.echo(
            f"Stopped after {duration(run_status.elapsed_s)} with {done} of {studies} done; nothing is lost. "
            f"Continue with:\n  {again}",
            err=True,
        )
        raise typer.Exit(REQUEUE)
    if run_status.given_up:
        typer.echo(
            f"{run_status.given_up} trial(s) could not be trained and are INCOMPLETE; metadata.json has the reason. "
            f"Retry them with: {again} --retry-incomplete",
            err=True,
        )
    if quiet:
        return
    steps = sum(study.trial_steps for study in run_status.studies)
    typer.echo(
        f"Finished in {duration(run_status.elapsed_s)}: {steps:,} steps in all trials, records in {out}", err=True
    )
