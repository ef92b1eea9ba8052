"""``batchscale plan``: from the curve to the machines, by time and by money."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.errors import PlanningError, one_line

if TYPE_CHECKING:
    from batchscale.planning.plan import MachinePlan

COLUMNS = (
    "machine",
    "hosts",
    "devices",
    "batch",
    "metaparameters",
    "steps",
    "time",
    "90 % interval",
    "cost",
    "efficiency",
    "notes",
)


def plan(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="CURVE",
            help="Records, the JSON of 'analyze --json', or a CSV: batch_size, steps, or one row per run.",
        ),
    ],
    step_times: Annotated[
        list[Path] | None,
        typer.Option(help="CSV as 'batchscale calibrate' writes it; may be given again."),
    ] = None,
    machines: Annotated[
        Path | None, typer.Option(help="machines.toml with prices. Default: what runs paid, or the shipped list.")
    ] = None,
    machine: Annotated[list[str] | None, typer.Option(help="Only this machine; may be repeated.")] = None,
    device: Annotated[list[str] | None, typer.Option(help="Only this device; may be repeated.")] = None,
    max_hosts: Annotated[int | None, typer.Option(help="The most hosts of every machine.")] = None,
    budget: Annotated[float | None, typer.Option(help="Money: which is the fastest within it?")] = None,
    deadline: Annotated[str | None, typer.Option(help="Time such as 4h or 4:30: which is the cheapest in it?")] = None,
    goal: Annotated[str | None, typer.Option(help="Of records: 'val/classification_error < 0.1'.")] = None,
    workload: Annotated[str | None, typer.Option(help="Of records: dataset/model/optimizer, or a part of it.")] = None,
    batch_sizes: Annotated[
        str | None, typer.Option(help="Further batch sizes between the measured ones: 48,96.")
    ] = None,
    by: Annotated[list[str] | None, typer.Option(help="A column that tells recipes of runs apart.")] = None,
    pool: Annotated[
        bool, typer.Option("--pool", help="Runs of all machines make one curve, instead of each its own.")
    ] = False,
    give_up: Annotated[float | None, typer.Option(help="The step at which a run is given up.")] = None,
    evaluation_time: Annotated[
        str | None, typer.Option(help="Of one evaluation, such as 3s; needs --evaluate-every.")
    ] = None,
    evaluate_every: Annotated[float | None, typer.Option(help="Steps between evaluations.")] = None,
    include_search: Annotated[
        bool, typer.Option("--include-search", help="Add what measuring the curve took and cost.")
    ] = False,
    search_machine: Annotated[
        str | None, typer.Option(help="Where trials of records were trained, for their price.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many configurations the table shows beside the front.")] = 12,
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
    csv: Annotated[Path | None, typer.Option(help="Write every configuration to this CSV file.")] = None,
    chart: Annotated[
        Path | None, typer.Option(help="Draw time against cost: .png, .svg, .pdf, .html or .json.")
    ] = None,
    step_time_chart: Annotated[Path | None, typer.Option(help="Draw measured and modelled step times.")] = None,
    job: Annotated[
        str | None,
        typer.Option(
            help="Write files that start a configuration: slurm, kubernetes, jobset, skypilot, vertex, tf-config, "
            "commands.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder of the job files.")] = None,
    pick: Annotated[str, typer.Option(help="What the job starts: fastest, cheapest, budget, deadline.")] = "fastest",
    experiment: Annotated[
        Path | None, typer.Option(help="The experiment file that the job trains. Default: the workload by name.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A metaparameter of the job: learning_rate=0.1; may be repeated.")
    ] = None,
    image: Annotated[str, typer.Option(help="The container image of the job.")] = "batchscale:latest",
    address: Annotated[
        list[str] | None,
        typer.Option(help="Of a host, the chief first; may be repeated."),
    ] = None,
    records: Annotated[str | None, typer.Option(help="Where the job writes its records.")] = None,
) -> None:
    """Say which machines and which batch size reach the goal fastest and cheapest, and how sure that is."""
    from batchscale.cli.output import print_json
    from batchscale.cli.plan_inputs import Request, build_plan, parse_duration, parse_sizes
    from batchscale.planning.evaluation import RunCosts
    from batchscale.planning.plan import PlanRequest
    from batchscale.planning.plan_json import plan_json

    _check_job(job, out, pick)
    costs = RunCosts(parse_duration(evaluation_time, "--evaluation-time") if evaluation_time else 0.0, evaluate_every)
    limit = None if deadline is None else parse_duration(deadline, "--deadline")
    if give_up is not None and not 0 < give_up < 2**53:
        raise PlanningError(f"--give-up is a positive number of steps. Found {give_up:g}.")
    request = Request(
        path,
        goal,
        workload,
        tuple(step_times or ()),
        machines,
        tuple(machine or ()),
        tuple(device or ()),
        max_hosts,
        parse_sizes(batch_sizes),
        tuple(by or ()),
        pool,
        give_up,
        include_search,
        search_machine,
    )
    found = build_plan(request, PlanRequest(budget, limit, costs))
    if csv is not None:
        from batchscale.records.durable import replace_durably

        replace_durably(csv, found.table.write_csv())
    _draw(found, chart, step_time_chart)
    if job is not None and out is not None:
        from batchscale.cli.plan_job import JobRequest, write_plan_job

        wanted = JobRequest(job, out, pick, experiment, image, tuple(address or ()), records, tuple(set_ or ()))
        for file in write_plan_job(found, wanted):
            typer.echo(str(file), err=json_)
    if json_:
        print_json(plan_json(found))
    elif job is None:
        _print_plan(found, top)


def _draw(found: "MachinePlan", chart: Path | None, step_time_chart: Path | None) -> None:
    if chart is None and step_time_chart is None:
        return
    from batchscale.figures.export import write_chart
    from batchscale.figures.kinds.plan import plan_frame, plot_plan
    from batchscale.figures.kinds.step_time import plot_step_time, step_time_frame

    if chart is not None:
        write_chart(plot_plan(plan_frame(found, found.workload or "plan")), chart, "time against cost")
    if step_time_chart is not None:
        write_chart(plot_step_time(step_time_frame(found.models)), step_time_chart, "step times")


def _check_job(job: str | None, out: Path | None, pick: str) -> None:
    from batchscale.planning.jobs.formats import check_format
    from batchscale.planning.recommend import PICKS

    if pick not in PICKS:
        raise PlanningError(f"--pick is one of {', '.join(PICKS)}. Found {one_line(repr(pick))}.")
    if job is not None:
        check_format(job)
    if (job is None) != (out is None):
        raise PlanningError("--job FORMAT and --out DIR come together: what to write, and where. Found one of them.")


def _print_plan(found: "MachinePlan", top: int) -> None:
    import polars as pl

    from batchscale.cli.output import print_table
    from batchscale.planning.sentences import left_out_sentences, model_sentences, plan_sentences, table_row

    about = [text for text in (found.workload, f"goal {found.goal}" if found.goal else None) if text]
    if about:
        typer.echo(", ".join(about))
    shown = found.table.with_row_index("place").filter((pl.col("place") < top) | pl.col("on_front")).drop("place")
    print_table(COLUMNS, [table_row(row) for row in shown.to_dicts()], right=(1, 2, 3, 5, 6, 8, 9))
    if shown.height < found.table.height:
        typer.echo(f"… and {found.table.height - shown.height:,} more configurations; --csv writes all of them.")
    typer.echo()
    for sentence in plan_sentences(found):
        typer.echo(sentence)
    typer.echo()
    for model in found.models:
        for sentence in model_sentences(model):
            typer.echo(sentence)
    for sentence in left_out_sentences(found):
        typer.echo(sentence)
