"""``batchscale validate``: check an experiment file and show what would be run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchscale.cli.output import print_json, print_table

if TYPE_CHECKING:
    from batchscale.spec import Plan


def validate(
    file: Annotated[Path, typer.Argument(help="The experiment file (TOML).")],
    data_dir: Annotated[Path | None, typer.Option(help="Where the data sets are.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check an experiment file and print what would be run: studies, trials, steps and their cost."""
    from batchscale.driver.preflight import find_facts
    from batchscale.errors import SpecError
    from batchscale.spec import make_plan, read_experiment

    experiment = read_experiment(file)
    try:
        plan = make_plan(experiment, find_facts(experiment, data_dir))
    except SpecError as error:
        raise SpecError(f"{file}: {error}") from None
    if as_json:
        print_json(_to_json(plan))
    else:
        _print_plan(plan)


def _print_plan(plan: "Plan") -> None:
    experiment = plan.experiment
    typer.echo(f"workload  {experiment.workload.name}")
    typer.echo(f"goal      {experiment.goal}")
    typer.echo(f"stop      {experiment.stop.value}")
    typer.echo(f"searched  {_ranges(plan)}")
    if experiment.trainer is not None:
        typer.echo(f"command   {_example_command(plan)}")
    typer.echo()
    rows = [
        (s.batch_size, s.trials, s.train_steps, len(s.evaluation_steps), s.trial_steps, s.trial_steps * s.batch_size)
        for s in plan.studies
    ]
    total = ("total", sum(s.trials for s in plan.studies), "", "", plan.trial_steps, plan.trial_examples)
    columns = ("batch size", "trials", "steps", "measurements", "trial-steps", "trial-examples")
    print_table(columns, [*rows, total], right=range(6))
    typer.echo("\nAt most, for one search at every batch size; diverged trials come on top, and ", nl=False)
    typer.echo("'race' usually needs far fewer." if experiment.stop.value == "race" else "another search as well.")


def _example_command(plan: "Plan") -> str:
    """The command of a trial in the middle of the search space, as a shell would show it."""
    import shlex

    from batchscale.trainers.facts import show_command

    return shlex.join(show_command(plan))


def _ranges(plan: "Plan") -> str:
    names = plan.studies[0].space.names
    fixed = [f"{name} = {value:g}" for name, value in plan.experiment.search.fixed.items()]
    return ", ".join(names or ("nothing",)) + (f" (fixed: {', '.join(fixed)})" if fixed else "")


def _to_json(plan: "Plan") -> dict[str, Any]:
    return {
        "workload": str(plan.experiment.workload.name),
        "goal": str(plan.experiment.goal),
        "stop": plan.experiment.stop.value,
        "studies": [
            {
                "batch_size": study.batch_size,
                "trials": study.trials,
                "train_steps": study.train_steps,
                "measurements": len(study.evaluation_steps),
                "trial_steps": study.trial_steps,
                "parameter_configs": study.space.to_json(),
                "fixed": dict(study.fixed),
            }
            for study in plan.studies
        ],
        "trials": sum(study.trials for study in plan.studies),
        "trial_steps": plan.trial_steps,
        "trial_examples": plan.trial_examples,
    }
