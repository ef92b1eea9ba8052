"""``batchscale trainer``: try your own training script on one trial; give it the file it imports."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.output import print_json

if TYPE_CHECKING:
    from batchscale.trainers.probing import Ability

JSON_VERSION = 1
_FIRST_LINE = '"""A trial\'s side of the conversation with batchscale: what to train, when to measure, when to stop.'
_PAUSES = {
    "waits": "waits in memory by itself",
    "freezes": "goes on by itself, so it is frozen (SIGSTOP) until it is needed",
    "leaves": "leaves by itself",
}


def make_trainer_app() -> typer.Typer:
    """The command under ``batchscale trainer``."""
    app = typer.Typer(help="Try your own training script.", no_args_is_help=True, rich_markup_mode=None)

    @app.callback()
    def group() -> None:
        """Try your own training script."""

    app.command("check")(check)
    app.command("copy")(copy)
    return app


def copy(
    folder: Annotated[Path, typer.Argument(help="Where your script is.")] = Path(),
) -> None:
    """Copy trial.py beside your script, for an environment without batchscale: then `import trial` there."""
    from importlib import resources

    from batchscale.errors import SpecError, one_line
    from batchscale.records.durable import replace_durably

    path = folder / "trial.py"
    ours = resources.files("batchscale").joinpath("trial.py").read_text(encoding="utf-8")
    try:
        if path.exists() and _FIRST_LINE not in path.read_text(encoding="utf-8", errors="replace").splitlines()[:1]:
            raise SpecError(
                f"'trainer copy' replaces only an earlier copy of its own. Found another file at '{one_line(path)}': "
                "name another folder."
            )
    except (OSError, ValueError) as error:
        raise SpecError(f"'trainer copy' cannot read '{one_line(path)}': {one_line(error)}.") from None
    replace_durably(path, ours)
    typer.echo(f"Wrote {path}. In your script: import trial")


def check(
    file: Annotated[Path, typer.Argument(help="The experiment file (TOML) with a [trainer] table.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run one trial for three measurements, pause it, resume it, and say what the trainer can do."""
    from batchscale.errors import SpecError
    from batchscale.run.preflight import make_checked_plan
    from batchscale.spec.file import read_experiment
    from batchscale.trainers.probing import check_trainer_ability

    experiment = read_experiment(file)
    if experiment.trainer is None:
        raise SpecError(f"{file}: 'trainer check' tries the script of a [trainer] table. Found no such table.")
    plan = make_checked_plan(experiment, None)
    ability = check_trainer_ability(plan)
    if as_json:
        found = {name: _finite(value) for name, value in ability.to_json().items()}
        print_json({"version": JSON_VERSION, **found, "resume": experiment.trainer.resume})
    else:
        for line in describe(ability, experiment.trainer.resume):
            typer.echo(line)


def describe(ability: "Ability", resume: bool) -> list[str]:
    """What a trainer showed, one line each, and what follows for a run."""
    same = ability.largest_difference == 0
    how = "digit for digit" if same else f"but for {ability.largest_difference:.1e} of a value"
    lines = [
        f"starts    {ability.start_s:.1f} s to the first measurement" + _with(ability.framework),
        f"measures  {', '.join(ability.metrics)} at steps {', '.join(map(str, ability.steps))}",
        f"pauses    {_PAUSES[ability.pauses]}",
        f"resumes   {_say_resumed(ability, resume)}",
        f"repeats   an interrupted trial measures what an uninterrupted one does, {how}",
    ]
    if ability.step_time_s is not None:
        lines.append(f"step      {1000 * ability.step_time_s:.3g} ms")
    if resume and ability.resumed_from is None:
        lines.append(
            "\nIt says resume = true but began anew: let it save when it is asked to leave, or say resume = false."
        )
    if not resume:
        lines.append(
            "\nPaused trials that do not find room in memory (trainer.max_paused) are trained again from their seed. A "
            "script that can go on from a checkpoint says so with resume = true."
        )
    if ability.largest_difference > 1e-3:
        lines.append(
            "\nTrials are not repeatable: seed everything with the trial's seed, the order of examples included."
        )
    return lines


def _with(framework: str | None) -> str:
    return f", with {framework}" if framework else ""


def _say_resumed(ability: "Ability", resume: bool) -> str:
    if ability.resumed_from is not None and ability.save_s is not None:
        return f"from step {ability.resumed_from}, saved in {ability.save_s:.1f} s"
    return "not: it began anew at step 0" if resume else "not asked for"


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
