"""``batchscale suggest``: metaparameters for a batch size, or for a planned launch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.completion import complete_workloads
from batchscale.cli.selection import GOAL_HELP, JSON_HELP, RECORDS_HELP, WORKLOAD_HELP

if TYPE_CHECKING:
    from batchscale.analysis.suggestion import Suggestion


def suggest(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help=f"{RECORDS_HELP} With --tokens also a CSV file of runs, or nothing."),
    ] = None,
    batch_size: Annotated[
        str | None,
        typer.Option(
            help='The batch size to train at, or "16k tokens"; with --tokens in tokens, where it may be left out.'
        ),
    ] = None,
    goal: Annotated[str | None, typer.Option(help=GOAL_HELP)] = None,
    workload: Annotated[str | None, typer.Option(help=WORKLOAD_HELP, autocompletion=complete_workloads)] = None,
    tokens: Annotated[
        str | None, typer.Option(help="Suggest values to launch a language model on so many tokens, such as 20B.")
    ] = None,
    parameters: Annotated[str | None, typer.Option(help="The parameters of that model, such as 1.5B.")] = None,
    sequence: Annotated[
        int | None,
        typer.Option(min=1, help="The tokens of its sequences, and of those of a file of runs. Default: 2048."),
    ] = None,
    schedule: Annotated[
        str, typer.Option(help="Its batch-size schedule: constant, warmup, late, or steps with --stages.")
    ] = "constant",
    stages: Annotated[
        str | None, typer.Option(help="Own stages, tokens and batch size in tokens: '0:256k 10B:1M'.")
    ] = None,
    multiple_of: Annotated[int, typer.Option(min=1, help="Batches are whole multiples of so many sequences.")] = 8,
    export: Annotated[
        str | None, typer.Option(help="Write a launch file for megatron-lm, olmo-core, nanochat or huggingface.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The launch file. Default: print it.")] = None,
    devices: Annotated[int, typer.Option(min=1, help="The data-parallel devices, for --export.")] = 1,
    micro_batch_size: Annotated[
        int, typer.Option(min=1, help="The sequences that a device takes at once, for --export.")
    ] = 1,
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Suggest metaparameters for a batch size or a planned launch.

    For a batch size: the measured optimum, smoothed over neighbouring sizes; outside the measured sizes, the trend of
    the rate. With --tokens and --parameters: batch size, learning rate, β2, weight decay and a schedule, by a fitted
    law, your own measurement or a published rule.
    """
    from batchscale.errors import AnalysisError, SpecError

    if tokens is not None:
        from batchscale.cli.suggest_launch import LaunchOptions, suggest_launch

        options = LaunchOptions(
            path, tokens, parameters, batch_size, sequence, schedule, stages, multiple_of, goal, workload, export, out,
            devices, micro_batch_size,
        )  # fmt: skip
        suggest_launch(options, as_json=json_)
        return
    for name, value in (("--parameters", parameters), ("--stages", stages), ("--export", export), ("--out", out)):
        if value is not None:
            raise SpecError(f"{name} needs --tokens, the tokens of a planned training. Found {name} alone.")
    if path is None or batch_size is None:
        raise SpecError("suggest needs records and --batch-size, or --tokens and --parameters. Found neither pair.")
    from batchscale.analysis.suggestion import suggest as suggest_values
    from batchscale.analysis.units import unit_of
    from batchscale.cli.selection import open_records, parse_batch_size, select_goal, select_workloads

    parsed = parse_batch_size(batch_size)
    records = open_records(path)
    names = select_workloads(records, workload)
    if len(names) > 1:
        listed = ", ".join(str(name) for name in names[:6])
        raise AnalysisError(f"--workload must select one workload. Found {len(names)} ({listed}).")
    unit = unit_of(records.workload(names[0]))
    (size,) = parsed.resolve(None, unit.tokens_per_example)
    result = suggest_values(records, names[0], select_goal(records, names[0], goal), size)
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
            "tokens_per_example": result.unit.tokens_per_example,
            "batch_size_tokens": result.unit.tokens(result.batch_size),
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
            "derived": dict(result.derived),
            "metaparameters": {row.pop("metaparameter"): row for row in result.values.to_dicts()},
        }
    )


def _print_text(result: "Suggestion") -> None:
    from batchscale.analysis.metaparameters import derived_label, derived_text
    from batchscale.cli.output import print_table
    from batchscale.formatting import metaparameter_text

    def ends(low: float | None, high: float | None) -> str | None:
        return None if low is None or high is None else f"{metaparameter_text(low)} to {metaparameter_text(high)}"

    measured = result.source == "measured"
    columns = ["metaparameter", "value", "90 % range of the best", *(["best trial"] if measured else [])]
    typer.echo(f"{result.workload} at batch size {result.unit.size(result.batch_size)}, goal {result.goal}")
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
    for name, value in result.derived.items():
        label = derived_label(name, result.unit)
        typer.echo(f"{label[:1].upper()}{label[1:]}: {derived_text(name, value)}")
    typer.echo()
    typer.echo(_training_text(result))
    typer.echo(_source_text(result))
    for size, note in result.notes.items():
        typer.echo(f"Notes on batch size {result.unit.size(size)}: {note}.")


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
    from batchscale.formatting import rounded_text

    sizes = result.unit.sizes(result.batch_sizes)
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
            f"at {result.unit.size(nearest)}. Tune again within the range if you can."
        ),
        "nearest": (
            f"{outside}two sizes or fewer show no trend, so these are the values of {result.unit.size(nearest)}. Tune "
            "again if you can."
        ),
    }[result.source]
