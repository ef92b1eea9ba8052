"""``batchscale suggest``: the metaparameters to train with at a batch size."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.choices import WORKLOAD_HELP

if TYPE_CHECKING:
    from batchscale.analysis import Suggestion


def suggest(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A records tree, table or archive.", show_default=False)],
    batch_size: Annotated[int, typer.Option(help="The batch size to train at.", min=1, show_default=False)],
    goal: Annotated[str | None, typer.Option(help="Default: the goal the studies were run for.")] = None,
    workload: Annotated[str | None, typer.Option(help=WORKLOAD_HELP)] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Suggest metaparameters: those measured best at the batch size, or interpolated between its neighbours."""
    from batchscale.analysis import suggest as suggest_values
    from batchscale.cli.choices import choose_goal, choose_workloads, open_records
    from batchscale.errors import AnalysisError

    records = open_records(path)
    names = choose_workloads(records, workload)
    if len(names) > 1:
        shown = ", ".join(str(name) for name in names[:6])
        raise AnalysisError(f"A suggestion is for one workload. Found {len(names)} ({shown}); give --workload.")
    result = suggest_values(records, names[0], choose_goal(records, names[0], goal), batch_size)
    if json_:
        _print_json(result)
    else:
        _print_text(result)


def _print_json(result: "Suggestion") -> None:
    from batchscale.cli.output import print_json

    print_json(
        {
            "workload": str(result.workload),
            "goal": str(result.goal),
            "batch_size": result.batch_size,
            "source": result.source,
            "batch_sizes": list(result.batch_sizes),
            "steps": result.steps,
            "notes": {str(size): note for size, note in result.notes.items()},
            "metaparameters": {row.pop("metaparameter"): row for row in result.values.to_dicts()},
        }
    )


def _print_text(result: "Suggestion") -> None:
    from batchscale.cli.output import print_table

    typer.echo(f"{result.workload} at batch size {result.batch_size:,}, goal {result.goal}")
    print_table(
        ("metaparameter", "value", "range", "trials"),
        [
            (name, f"{value:.6g}", f"{low:.6g} to {high:.6g}", trials)
            for name, value, low, high, trials in result.values.rows()
        ],
        right=(1, 2, 3),
    )
    typer.echo()
    sizes = " and ".join(f"{size:,}" for size in result.batch_sizes)
    typer.echo(
        {
            "measured": f"Measured there: about {result.steps:,.0f} steps to the goal.",
            "interpolated": f"Interpolated between batch sizes {sizes}: expect about {result.steps:,.0f} steps.",
            "nearest": f"Outside what was measured: these are the values of batch size {sizes}; tune anew if you can.",
        }[result.source]
    )
    typer.echo("The range holds every trial that came within 10 % of the best steps.")
    for size, note in result.notes.items():
        typer.echo(f"Notes on batch size {size:,}: {note}.")
