"""``batchscale run``: from an experiment file to a finished records tree."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli import clusters
from batchscale.cli.live import make_display
from batchscale.cli.ray_options import find_address, note_ray
from batchscale.errors import REQUEUE, RunError
from batchscale.formatting import duration, size

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchscale.run.run_settings import RunSettings
    from batchscale.run.session import RunOutcome
    from batchscale.run.signals import StopFlag
    from batchscale.run.snapshot import Snapshot
    from batchscale.spec.experiment import Experiment
    from batchscale.spec.plan import Plan

SHOWN_STATES_BYTES = 100e6


def _parse_folder(text: str) -> Path:
    if not text.strip():
        raise typer.BadParameter("a folder has a name; found none. Is it a shell variable that is not set?")
    return Path(text)


def run(
    file: Annotated[Path, typer.Argument(help="The experiment file (TOML).")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", parser=_parse_folder, metavar="PATH", help="The folder of the records; a run there is continued."
        ),
    ],
    runner: Annotated[
        str,
        typer.Option(
            help="Where trials are trained: local (worker processes), inline, ray (a Ray cluster) or slurm (jobs)."
        ),
    ] = "local",
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="The Ray cluster: auto, HOST:PORT or ray://HOST:PORT. Default: a local one, while the run lasts.",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes, or jobs. Default: one per accelerator, else per core.")
    ] = None,
    cluster: Annotated[str, typer.Option(help=clusters.HELP)] = "none",
    mirror: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A remote path that --out is copied to, and restored from."),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the data sets are.")] = None,
    retries: Annotated[int, typer.Option(min=0, help="How often a trial is tried again when its worker fails.")] = 3,
    retry_incomplete: Annotated[
        bool, typer.Option("--retry-incomplete", help="Train INCOMPLETE trials of an earlier run again.")
    ] = False,
    keep_states: Annotated[
        float,
        typer.Option(
            min=0, metavar="GB", help="Disk space for trials' last states: a larger step budget goes on from them."
        ),
    ] = 4.0,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="No progress; the curve as CSV, as 'fit' reads it, and what needs attention."
        ),
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON object when the run is finished.")] = False,
) -> None:
    """Run an experiment, or continue it: the same command after any stop goes on where it was."""
    from batchscale.run.signals import StopFlag

    with StopFlag() as stop:  # from the very start: loading and checking take a second or two
        from batchscale.run.run_settings import RunSettings
        from batchscale.spec.file import read_experiment

        experiment = read_experiment(file)
        with clusters.together_for(clusters.look_up(cluster), experiment) as (peers, group):
            plan = _check(experiment, data_dir, stop)
            address = find_address(runner, ray_address)
            settings = RunSettings(
                runner, workers, data_dir, retries, retry_incomplete, keep_states, peers, group, address
            )
            if peers is not None and not peers.is_chief:
                outcome = None
                followed = _follow(plan, settings, stop)
            else:
                note_cache(plan.experiment.trainer is None)
                _note_retraining(plan, quiet or json_)
                note_ray(settings, plan.experiment.run.ray, out, quiet or json_)
                outcome = _run_mirrored(plan, out, settings, quiet, stop, mirror)
                if peers is not None:
                    peers.share("result", str(outcome.result).encode())
    if outcome is None:  # the chief says how the run ended
        raise typer.Exit(followed)
    again = f"batchscale run {file} --out {out}" + (f" --mirror {mirror}" if mirror else "")
    again += f" --runner {runner}" if runner != "local" else ""
    again += f" --workers {workers}" if runner == "slurm" else ""
    again += f" --ray-address {ray_address}" if ray_address else ""
    report_outcome(outcome, out, again, quiet=quiet or json_)
    _require_trainable(outcome, plan)
    from batchscale.cli.closing import closing_json, print_closing, print_curve

    if json_:
        from batchscale.cli.output import print_json

        print_json(closing_json(out, plan, outcome.snapshot))
        return
    if quiet:
        print_curve(out, plan)
        return
    print_closing(out, plan)
    typer.echo(f"\nRecords: {out}{_note_states(out)}\nNext:    batchscale analyze {out}")


def _note_retraining(plan: "Plan", quiet: bool) -> None:
    """Say before the run that a script which cannot resume may be trained again from its seed."""
    from batchscale.study.stop_rules import find_rule

    trainer = plan.experiment.trainer
    if trainer is not None and not trainer.resume and not find_rule(plan.experiment.stop).in_turn and not quiet:
        typer.echo(
            "This trainer does not resume: a paused trial that finds no room in memory (trainer.max_paused) is trained "
            "again from its seed.",
            err=True,
        )


def note_cache(needed: bool = True) -> None:
    """Say once, on standard error, that the cache folder cannot be used."""
    from batchscale.workloads.cache import cache_problem

    problem = cache_problem() if needed else None
    if problem is not None:
        typer.echo(f"Note: {problem}", err=True)


def _check(experiment: "Experiment", data_dir: Path | None, stop: "StopFlag") -> "Plan":
    from batchscale.run.preflight import make_checked_plan

    try:
        return make_checked_plan(experiment, data_dir, lambda: stop.is_set)
    except KeyboardInterrupt:
        typer.echo("Stopped before anything was run; the same command starts again.", err=True)
        raise typer.Exit(REQUEUE) from None


def _require_trainable(outcome: "RunOutcome", plan: "Plan") -> None:
    """Say which studies have no trial that did not diverge; if none has any, the run has found nothing.

    Raises:
        RunError: there is no COMPLETE trial at all.
    """
    diverged = [study for study in outcome.snapshot.studies if study.infeasible and not study.complete]
    if not diverged:
        return
    ranges = {study.batch_size: study.space for study in plan.studies}
    searched = ", ".join(
        f"{config.name} {config.min_value:g} to {config.max_value:g}" for config in ranges[diverged[0].batch_size]
    )
    sizes = ", ".join(f"{study.batch_size:,}" for study in diverged)
    trials = sum(study.infeasible for study in diverged)
    text = (
        f"At batch size {sizes} all {trials:,} trials diverged (INFEASIBLE): a search space holds values that train. "
        f"Found {searched or 'fixed values only'}; lower learning_rate first, in [search.space], and run into another "
        "--out."
    )
    if any(study.complete for study in outcome.snapshot.studies):
        typer.echo(text, err=True)
    else:
        raise RunError(f"{text} What was recorded is kept.")


def _run_mirrored(
    plan: "Plan", out: Path, settings: "RunSettings", quiet: bool, stop: "StopFlag", mirror: str | None
) -> "RunOutcome":
    """Run a plan; a mirror is told whenever another trial is recorded."""
    from batchscale.run.mirroring import mirrored

    recorded = 0
    with mirrored(out, mirror, lambda text: typer.echo(text, err=True)) as news:

        def look(snapshot: "Snapshot") -> None:
            nonlocal recorded
            count = sum(study.complete + study.infeasible + study.incomplete for study in snapshot.studies)
            if count != recorded:
                recorded = count
                news()

        return run_shown(plan, out, settings, quiet, stop, look)


def _follow(plan: "Plan", settings: "RunSettings", stop: "StopFlag") -> int:
    """Train with the chief of a cluster, which says everything else; the exit code."""
    from batchscale.run.driver import Result
    from batchscale.run.place_runner import follow_run

    follow_run(plan, settings, stop)
    assert settings.peers is not None
    return REQUEUE if settings.peers.share("result", b"").decode() == Result.STOPPED else 0


def _note_states(out: Path) -> str:
    """What the kept states take, where that is worth knowing."""
    from batchscale.records.tree.layout import RunPaths

    folder = RunPaths(out).checkpoints
    num_bytes = sum(path.stat().st_size for path in folder.glob("*/*.npz"))
    if num_bytes < SHOWN_STATES_BYTES:
        return ""
    return f"\nStates:  {size(num_bytes)} in {folder}, to train longer from; may be removed"


def run_shown(
    plan: "Plan",
    out: Path,
    settings: "RunSettings",
    quiet: bool,
    stop: "StopFlag | None" = None,
    look: "Callable[[Snapshot], None]" = lambda _snapshot: None,
) -> "RunOutcome":
    """Run a plan with a display on standard error; ``look`` sees how it stands as well."""
    from batchscale.run.session import run_plan

    display = make_display(quiet)

    def show(snapshot: "Snapshot") -> None:
        display.show(snapshot)
        look(snapshot)

    try:
        return run_plan(plan, out, settings, show, stop)
    finally:
        display.close()


def report_outcome(outcome: "RunOutcome", out: Path, again: str, *, quiet: bool = False) -> None:
    """Say how the run ended, a quiet one only where that needs attention.

    A stopped run exits with the code for "requeue me".
    """
    from batchscale.run.driver import Result

    snapshot = outcome.snapshot
    if outcome.result is Result.STOPPED:
        done = sum(study.done for study in snapshot.studies)
        typer.echo(
            f"Stopped after {duration(snapshot.elapsed_s)} with {done} of {len(snapshot.studies)} studies done; "
            f"nothing is lost. Go on with:\n  {again}",
            err=True,
        )
        raise typer.Exit(REQUEUE)
    if snapshot.given_up:
        typer.echo(
            f"{snapshot.given_up} trial(s) could not be trained and are INCOMPLETE, with the reason in their "
            f"metadata.json. To try them again: {again} --retry-incomplete",
            err=True,
        )
    if quiet:
        return
    steps = sum(study.trial_steps for study in snapshot.studies)
    typer.echo(f"Finished in {duration(snapshot.elapsed_s)}: {steps:,} trial-steps, records in {out}", err=True)
