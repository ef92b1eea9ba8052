"""``batchscale analyze``: the curve of a workload, its regimes, and how much to believe them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchscale.cli.selection import WORKLOAD_HELP

if TYPE_CHECKING:
    from batchscale.analysis.curve_analysis import Analysis

COLUMNS = ("batch size", "steps", "90 % interval", "examples", "trial", "reached", "infeasible", "notes")


def analyze(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A records tree, table or archive.", show_default=False)],
    goal: Annotated[
        str | None, typer.Option(help='"val/classification_error < 0.1". Default: the goal the studies were run for.')
    ] = None,
    workload: Annotated[str | None, typer.Option(help=WORKLOAD_HELP)] = None,
    baseline: Annotated[
        str,
        typer.Option(help="Perfect scaling line: robust (through the fewest examples) or first (the paper's)."),
    ] = "robust",
    tau: Annotated[float, typer.Option(help="How far above the line still counts as perfect scaling.")] = 0.3,
    useful: Annotated[float, typer.Option(help="How far above the fewest steps still counts as useful.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Seed of the resampling.", min=0)] = 0,
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON object (a list for several workloads).")] = False,
) -> None:
    """Show steps to result against batch size with intervals, the three regimes, and what to do."""
    from batchscale.analysis.as_json import analysis_json
    from batchscale.analysis.curve_analysis import AnalysisOptions
    from batchscale.analysis.curve_analysis import analyze as analyze_workload
    from batchscale.analysis.intervals import Resampling
    from batchscale.analysis.regimes import Thresholds
    from batchscale.cli.output import print_json
    from batchscale.cli.selection import open_records, parse_baseline, select_goal, select_workloads
    from batchscale.errors import AnalysisError

    options = AnalysisOptions(parse_baseline(baseline), Thresholds(perfect=tau, useful=useful), Resampling(seed=seed))
    records = open_records(path)
    chosen = select_workloads(records, workload)
    goals = [select_goal(records, name, goal) for name in chosen]
    answers = []
    for name, one in zip(chosen, goals, strict=True):
        try:
            answers.append(analyze_workload(records, name, one, options))
        except AnalysisError as error:
            if len(chosen) == 1:
                raise
            typer.echo(f"Notice: {error}", err=True)  # other workloads still have an answer
    if not answers:
        raise AnalysisError("None of these workloads has a COMPLETE trial, so there is nothing to analyze.")
    if json_:
        objects = [analysis_json(answer) for answer in answers]
        print_json(objects[0] if len(objects) == 1 else objects)
        return
    for i, answer in enumerate(answers):
        if i:
            typer.echo()
        _print_answer(answer)


def _print_answer(answer: "Analysis") -> None:
    from batchscale.analysis.sentences import answer_sentences
    from batchscale.cli.output import print_table

    typer.echo(f"{answer.workload}, goal {answer.goal}")
    print_table(COLUMNS, [_row(row) for row in answer.curve.iter_rows(named=True)], right=(0, 1, 2, 3, 4, 5, 6))
    typer.echo()
    for sentence in answer_sentences(answer):
        typer.echo(sentence)


def _row(row: dict[str, Any]) -> tuple[object, ...]:
    from batchscale.formatting import span_text, whole_text
    from batchscale.records.summary import study_note

    low, high = row["steps_low"], row["steps_high"]
    span = span_text(low, high, whole_text) or None
    notes = [
        study_note(row["edge"] if row["at_edge"] else None, row["searches"]),
        f"{row['stopped']} stopped early" if row["stopped"] else "",
        "still moves" if row["still_moves"] else "",
        "one finisher: no interval" if row["interval_note"] and low is None else "",
    ]
    reached = f"{row['reached']}/{row['trials']}"
    shown = "; ".join(note for note in notes if note)
    return (row["batch_size"], row["steps"], span, row["examples"], row["trial_id"], reached, row["infeasible"], shown)
