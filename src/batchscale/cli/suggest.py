"""``batchscale suggest``: metaparameters for a batch size."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.selection import GOAL_HELP, JSON_HELP, RECORDS_HELP, WORKLOAD_HELP

if TYPE_CHECKING:
    from batchscale.analysis.suggestion import Suggestion


def suggest(
    path: Annotated[Path, typer.Argument(metavar="DIR", help=RECORDS_HELP)],
    batch_size: Annotated[int, typer.Option(help="The batch size to train at.", min=1)],
    goal: Annotated[str | None, typer.Option(help=GOAL_HELP)] = None,
    workload: Annotated[str | None, typer.Option(help=WORKLOAD_HELP)] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Suggest metaparameters for a batch size.

    Uses the measured values at that size, values between its neighbours, or the trend of all measured sizes.
    """
    from batchscale.analysis.suggestion import suggest as suggest_values
    from batchscale.cli.selection import open_records, select_goal, select_workloads
    from batchscale.errors import AnalysisError

    records = open_records(path)
    names = select_workloads(records, workload)
    if len(names) > 1:
        listed = ", ".join(str(name) for name in names[:6])
        raise AnalysisError(f"--workload must select one workload. Found {len(names)} ({listed}).")
    result = suggest_values(records, names[0], select_goal(records, names[0], goal), batch_size)
    if json_:
        _print_json(result)
    else:
        _print_text(result)


def _print_json(result: "Suggestion") -> None:
    from batchscale.analysis.as_json import VERSION
    from batchscale.cli.output import print_json

    print_json(
        {
            "version": VERSION,
            "workload": str(result.workload),
            "goal": str(result.goal),
            "batch_size": result.batch_size,
            "source": result.source,
            "batch_sizes": list(result.batch_sizes),
            "steps": result.steps.value,
            "steps_low": result.steps.low,
            "steps_high": result.steps.high,
            "notes": {str(size): note for size, note in result.notes.items()},
            "metaparameters": {row.pop("metaparameter"): row for row in result.values.to_dicts()},
        }
    )


def _print_text(result: "Suggestion") -> None:
    from batchscale.cli.output import print_table
    from batchscale.formatting import list_sizes, rounded_text, span_text

    def ends(low: float | None, high: float | None) -> str | None:
        return None if low is None or high is None else f"{low:.4g} to {high:.4g}"

    measured = result.source == "measured"
    columns = ["metaparameter", "value", "90 % range of the best"]
    columns += ["trials within 10 %", "their values"] if measured else []
    typer.echo(f"{result.workload} at batch size {result.batch_size:,}, goal {result.goal}")
    print_table(
        columns,
        [
            (name, f"{value:.6g}", ends(*best), *((trials, ends(low, high)) if measured else ()))
            for name, value, *best, low, high, trials in result.values.rows()
        ],
        right=range(1, len(columns)),
    )
    typer.echo()
    sizes = list_sizes(list(result.batch_sizes))
    steps = "the steps there are unknown"
    if result.steps.value is not None:
        span = span_text(result.steps.low, result.steps.high)
        steps = f"expect about {rounded_text(result.steps.value)}{f' ({span})' if span else ''} steps to the goal"
    typer.echo(
        {
            "measured": f"Measured at this batch size: {steps}.",
            "interpolated": f"Interpolated between batch sizes {sizes}: {steps}.",
            "extrapolated": (
                f"Outside the measured batch sizes: the trend of the best values at {sizes}; {steps}. No rule holds "
                "everywhere: tune again within the range if you can."
            ),
            "nearest": (
                f"Outside the measured batch sizes, which are too few for a trend: these are the values of batch size "
                f"{sizes}; {steps}. Tune again if you can."
            ),
        }[result.source]
    )
    if result.values["range_low"].null_count() < len(result.values):
        typer.echo("The range contains the best value in nine of ten cases, by the scatter of the measured optima.")
    for size, note in result.notes.items():
        typer.echo(f"Notes on batch size {size:,}: {note}.")
