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
    """Suggest metaparameters for a batch size, with expected steps.

    Uses the measured optimum, smoothed over neighbouring sizes; outside the measured sizes, the trend of the rate.
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
            "reach_chance": result.chance,
            "budget": result.budget,
            "trials_near": result.trials_near,
            "search_steps": result.search_steps.value,
            "search_steps_low": result.search_steps.low,
            "search_steps_high": result.search_steps.high,
            "distance": result.distance,
            "notes": {str(size): note for size, note in result.notes.items()},
            "metaparameters": {row.pop("metaparameter"): row for row in result.values.to_dicts()},
        }
    )


def _print_text(result: "Suggestion") -> None:
    from batchscale.cli.output import print_table
    from batchscale.formatting import metaparameter_text

    def ends(low: float | None, high: float | None) -> str | None:
        return None if low is None or high is None else f"{metaparameter_text(low)} to {metaparameter_text(high)}"

    measured = result.source == "measured"
    columns = ["metaparameter", "value", "90 % range of the best", *(["best trial"] if measured else [])]
    typer.echo(f"{result.workload} at batch size {result.batch_size:,}, goal {result.goal}")
    print_table(
        columns,
        [
            (
                row["metaparameter"],
                f"{row['value']:.12g}",
                ends(row["range_low"], row["range_high"]),
                *([None if row["winner"] is None else metaparameter_text(row["winner"])] if measured else []),
            )
            for row in result.values.iter_rows(named=True)
        ],
        right=range(1, len(columns)),
    )
    typer.echo()
    typer.echo(_training_text(result))
    typer.echo(_source_text(result))
    for size, note in result.notes.items():
        typer.echo(f"Notes on batch size {size:,}: {note}.")


def _training_text(result: "Suggestion") -> str:
    """Return the sentences on one training with these values, and on a whole search."""
    from batchscale.formatting import percent_text, rounded_text, span_text, whole_text

    texts = []
    if result.steps.value is None:
        texts.append("The steps of one training there are unknown.")
    else:
        span = span_text(result.steps.low, result.steps.high)
        texts.append(
            f"Expect about {rounded_text(result.steps.value)} ({span}) steps from one training with these values."
        )
    if result.chance is not None:
        within = "" if result.budget is None else f" within {whole_text(result.budget)} steps"
        texts.append(f"Chance to reach the goal{within}: {percent_text(min(result.chance, 0.99))}.")
    if result.search_steps.value is not None:
        texts.append(f"The best of a whole search needs about {rounded_text(result.search_steps.value)} steps.")
    return "\n".join(texts)


def _source_text(result: "Suggestion") -> str:
    """Return the sentence on what the values rest on."""
    from batchscale.formatting import list_sizes, rounded_text

    sizes = list_sizes(list(result.batch_sizes))
    above = result.batch_size > max(result.batch_sizes)
    nearest = max(result.batch_sizes) if above else min(result.batch_sizes)
    outside = (
        f"Outside the measured batch sizes ({rounded_text(result.distance)} times "
        f"{'above the largest' if above else 'below the smallest'}): "
    )
    return {
        "measured": "Measured: the values are the optimum at this batch size, smoothed over its neighbours.",
        "interpolated": f"Interpolated between batch sizes {sizes}.",
        "extrapolated": (
            f"{outside}the learning rate follows the trend of the best values at {sizes}, with caution; all else is as "
            f"at {nearest:,}. Tune again within the range if you can."
        ),
        "nearest": (
            f"{outside}two sizes or fewer show no trend, so these are the values of {nearest:,}. Tune again if you can."
        ),
    }[result.source]
