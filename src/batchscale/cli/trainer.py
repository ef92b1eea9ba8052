"""``batchscale trainer``: check your own training script, and copy the file that it imports."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.output import print_json
from batchscale.cli.selection import JSON_HELP

if TYPE_CHECKING:
    from batchscale.trainers.probing import Ability

JSON_VERSION = 1
HELP = "Check that your own training script works with batchscale."
_FIRST_LINES = {
    '"""Connect a training script to batchscale: read the trial to train, report measurements, stop when requested.',
    '"""A trial\'s side of the conversation with batchscale: what to train, when to measure, when to stop.',  # 0.1.0
}
_PAUSES = {
    "waits": "it waits in memory",
    "freezes": "it ignores pauses, so it is frozen (SIGSTOP) until it is needed",
    "leaves": "it exits",
}


def make_trainer_app() -> typer.Typer:
    """Return the commands under ``batchscale trainer``."""
    app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)

    @app.callback(help=HELP)
    def group() -> None:
        pass

    app.command("check")(check)
    app.command("copy")(copy)
    return app


def copy(
    folder: Annotated[Path, typer.Argument(help="The folder of your script.")] = Path(),
) -> None:
    """Copy trial.py beside your script.

    For an environment without batchscale: the script then has `import trial`.
    """
    from importlib import resources

    from batchscale.errors import SpecError, one_line
    from batchscale.records.output_file import write_output

    path = folder / "trial.py"
    ours = resources.files("batchscale").joinpath("trial.py").read_text(encoding="utf-8")
    try:
        if path.exists() and not _FIRST_LINES & {*path.read_text(encoding="utf-8", errors="replace").splitlines()[:1]}:
            raise SpecError(
                f"'trainer copy' must not replace a file that it did not write. Found '{one_line(path)}'. Pass another "
                "folder."
            )
    except (OSError, ValueError) as error:
        raise SpecError(f"'trainer copy' cannot read '{one_line(path)}': {one_line(error)}.") from None
    write_output(path, ours)
    typer.echo(f"Wrote {path}. In your script: import trial")


def check(
    file: Annotated[Path, typer.Argument(help="The experiment file (TOML). It must have a [trainer] table.")],
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Run one trial of your script, pause and resume it, and report.

    Takes three measurements and shows whether the script pauses, resumes and repeats its results.
    """
    from batchscale.errors import SpecError
    from batchscale.run.preflight import make_checked_plan
    from batchscale.spec.file import read_experiment
    from batchscale.trainers.probing import check_trainer_ability

    experiment = read_experiment(file)
    if experiment.trainer is None:
        raise SpecError(
            f"{file}: 'trainer check' tries your own training script, which a [trainer] table names. Found none: this "
            f"experiment uses the built-in engine. Continue with 'batchscale run {file}', or start a file for your "
            "script with 'batchscale init NAME --trainer train.py'."
        )
    plan = make_checked_plan(experiment, None)
    ability = check_trainer_ability(plan, show=lambda line: typer.echo(line, err=True))
    if as_json:
        values = {name: _finite(value) for name, value in ability.to_json().items()}
        print_json({"version": JSON_VERSION, **values, "resume": experiment.trainer.resume})
    else:
        for line in describe(ability, experiment.trainer.resume):
            typer.echo(line)


def describe(ability: "Ability", resume: bool) -> list[str]:
    """Describe the behaviour of a trainer, one line each, and its consequences for a run."""
    same = ability.largest_difference == 0
    precision = "exactly" if same else f"within {ability.largest_difference:.1e} of a value"
    lines = [
        f"starts    {ability.start_s:.1f} s to the first measurement" + _with(ability.framework),
        f"measures  {', '.join(ability.metrics)} at steps {', '.join(map(str, ability.steps))}",
        f"pauses    {_PAUSES[ability.pauses]}",
        f"resumes   {_describe_resume(ability, resume)}",
        f"repeats   an interrupted trial measures the same as an uninterrupted one, {precision}",
    ]
    if ability.step_time_s is not None:
        lines.append(f"step      {1000 * ability.step_time_s:.3g} ms")
    if resume and ability.resumed_from is None:
        lines.append(
            "\nThe script has resume = true but started from step 0. Save when the script is asked to stop, or set "
            "resume = false."
        )
    if not resume:
        lines.append(
            "\nPaused trials that do not fit in memory (trainer.max_paused) are trained again from their seed. Set "
            "resume = true if the script can continue from a checkpoint."
        )
    if ability.is_repeatable:
        lines.append(
            f"\nResuming changes the result, by {ability.largest_difference:.1e}, although the script repeats itself "
            "exactly without an interruption. Save and load everything that training depends on: optimizer, schedule, "
            "random numbers, the order of the data. In run.steps, pass skip=False if load restores that order, and "
            "skip=True if it begins anew in every start."
        )
    elif ability.largest_difference > 1e-3:
        lines.append("\nTrials are not repeatable. Seed everything with the trial's seed, also the order of examples.")
    return lines


def _with(framework: str | None) -> str:
    return f", with {framework}" if framework else ""


def _describe_resume(ability: "Ability", resume: bool) -> str:
    if ability.resumed_from is not None and ability.save_s is not None:
        return f"from step {ability.resumed_from}, saved in {ability.save_s:.1f} s"
    return "no: it started again at step 0" if resume else "not tested (resume = false)"


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
