"""``batchscale plan``: the machines and the batch size to train with, by time and by cost."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.completion import complete_workloads
from batchscale.cli.selection import GOAL_HELP, JSON_HELP, WORKLOAD_HELP
from batchscale.errors import PlanningError, one_line
from batchscale.formatting import count_text

if TYPE_CHECKING:
    from batchscale.planning.plan import MachinePlan

MOST_LEFT_OUT = 3


def plan(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="CURVE",
            help="Records, the JSON of 'analyze --json', or a CSV file of a curve or of runs. Not needed with --model.",
        ),
    ] = None,
    step_times: Annotated[
        list[Path] | None,
        typer.Option(help="A CSV file of 'batchscale calibrate'. Default: times in the curve. May be repeated."),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(help="A CSV file of 'calibrate --work': estimate step times of devices that were not measured."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="A TOML file with the shape of a language model: estimate its step times.")
    ] = None,
    devices: Annotated[
        Path | None, typer.Option(help="A CSV file of further devices, with the columns of 'batchscale devices'.")
    ] = None,
    overlap: Annotated[
        float | None, typer.Option(help="The share of exchanging gradients hidden behind computing. Default: 0.7.")
    ] = None,
    machines: Annotated[
        Path | None,
        typer.Option(help="A machines.toml with prices. Default: the prices of the runs, else the shipped list."),
    ] = None,
    machine: Annotated[
        list[str] | None, typer.Option(help="Use only this machine. Default: all. May be repeated.")
    ] = None,
    device: Annotated[
        list[str] | None, typer.Option(help="Use only this device. Default: all. May be repeated.")
    ] = None,
    max_hosts: Annotated[
        int | None, typer.Option(help="The most hosts of every machine. Default: as in the list.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Find the fastest configuration within this cost.")] = None,
    deadline: Annotated[
        str | None, typer.Option(help="Find the cheapest configuration within this time, such as 4h or 4:30.")
    ] = None,
    goal: Annotated[str | None, typer.Option(help=GOAL_HELP)] = None,
    workload: Annotated[str | None, typer.Option(help=WORKLOAD_HELP, autocompletion=complete_workloads)] = None,
    batch_sizes: Annotated[
        str | None, typer.Option(help="Further batch sizes between the measured ones: 48,96, or 24k tokens.")
    ] = None,
    by: Annotated[
        list[str] | None, typer.Option(help="A CSV column that distinguishes recipes of runs. May be repeated.")
    ] = None,
    pool: Annotated[
        bool, typer.Option("--pool", help="Make one curve of the runs of all machines, not one per machine.")
    ] = False,
    give_up: Annotated[float | None, typer.Option(help="The step at which a run counts as failed.")] = None,
    evaluation_time: Annotated[
        str | None, typer.Option(help="The time of one evaluation, such as 3s. Needs --evaluate-every.")
    ] = None,
    evaluate_every: Annotated[float | None, typer.Option(help="The number of steps between evaluations.")] = None,
    include_search: Annotated[
        bool, typer.Option("--include-search", help="Add the time and cost of measuring the curve.")
    ] = False,
    search_machine: Annotated[
        str | None, typer.Option(help="The machine that trained the trials of records, for --include-search.")
    ] = None,
    top: Annotated[
        int, typer.Option(min=1, help="The number of configurations in the table, besides the Pareto front.")
    ] = 12,
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
    csv: Annotated[Path | None, typer.Option(help="Write every configuration to this CSV file.")] = None,
    chart: Annotated[
        Path | None, typer.Option(help="Draw time against cost into this file: .png, .svg, .pdf, .html or .json.")
    ] = None,
    devices_chart: Annotated[
        Path | None, typer.Option(help="Draw time against the number of devices, and where more stop paying.")
    ] = None,
    step_time_chart: Annotated[
        Path | None, typer.Option(help="Draw measured and modelled step times into this file.")
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            help="Write job files: slurm, kubernetes, jobset, skypilot, vertex, tf-config or commands.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder of the job files. Needs --job.")] = None,
    pick: Annotated[
        str, typer.Option(help="The configuration of the job: fastest, cheapest, budget or deadline.")
    ] = "fastest",
    experiment: Annotated[
        Path | None,
        typer.Option(help="The experiment file of the curve. Its script is shipped. Default: the workload by name."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A metaparameter of the job, such as learning_rate=0.1. May be repeated."),
    ] = None,
    image: Annotated[str, typer.Option(help="The container image of the job.")] = "batchscale:latest",
    address: Annotated[
        list[str] | None,
        typer.Option(help="The address of a host, the chief first. May be repeated."),
    ] = None,
    records: Annotated[
        str | None, typer.Option(help="The folder in which the job writes its records, or a remote path to mirror to.")
    ] = None,
) -> None:
    """Find the fastest or cheapest machines and batch size for a goal.

    Combines a curve, step times and prices, and can write job files for the chosen configuration.
    """
    from batchscale.cli.output import print_json
    from batchscale.cli.plan_inputs import PlanOptions, build_plan, parse_duration
    from batchscale.planning.evaluation import RunCosts
    from batchscale.planning.plan import PlanRequest
    from batchscale.planning.plan_json import plan_json

    _check_job(job, out, pick)
    costs = RunCosts(parse_duration(evaluation_time, "--evaluation-time") if evaluation_time else 0.0, evaluate_every)
    limit = None if deadline is None else parse_duration(deadline, "--deadline")
    if give_up is not None and not 0 < give_up < 2**53:
        raise PlanningError(f"--give-up must be a positive number of steps. Found {give_up:g}.")
    request = PlanOptions(
        path,
        goal,
        workload,
        tuple(step_times or ()),
        machines,
        tuple(machine or ()),
        tuple(device or ()),
        max_hosts,
        batch_sizes,
        tuple(by or ()),
        pool,
        give_up,
        include_search,
        search_machine,
        work,
        model,
        devices,
        overlap,
    )
    machine_plan = build_plan(request, PlanRequest(budget, limit, costs))
    if csv is not None:
        from batchscale.records.output_file import write_output

        write_output(csv, machine_plan.table.write_csv())
    _draw(machine_plan, chart, devices_chart, step_time_chart)
    if job is not None and out is not None:
        from batchscale.cli.plan_job import JobRequest, write_plan_job
        from batchscale.planning.jobs.fill_in import HEADING

        job_request = JobRequest(
            job, out, pick, experiment, image, tuple(address or ()), records, tuple(set_ or ()), goal is not None
        )
        files, items = write_plan_job(machine_plan, job_request)
        for file in files:
            typer.echo(str(file), err=json_)
        typer.echo(f"\n{HEADING}", err=json_)
        for number, item in enumerate(items, 1):
            typer.echo(f"{number}. {item}", err=json_)
    if json_:
        print_json(plan_json(machine_plan))
    elif job is None:
        _print_plan(machine_plan, top)


def _draw(
    machine_plan: "MachinePlan", chart: Path | None, devices_chart: Path | None, step_time_chart: Path | None
) -> None:
    if chart is None and devices_chart is None and step_time_chart is None:
        return
    from batchscale.figures.export import write_chart
    from batchscale.figures.kinds.more_devices import more_devices_frame, plot_more_devices
    from batchscale.figures.kinds.plan import plan_frame, plot_plan
    from batchscale.figures.kinds.step_time import plot_step_time, step_time_frame

    if chart is not None:
        write_chart(plot_plan(plan_frame(machine_plan, machine_plan.workload or "plan")), chart, "time against cost")
    if devices_chart is not None:
        drawn = plot_more_devices(more_devices_frame(machine_plan, machine_plan.workload or "plan"))
        write_chart(drawn, devices_chart, "time by number of devices")
    if step_time_chart is not None:
        write_chart(plot_step_time(step_time_frame(machine_plan.models)), step_time_chart, "step times")


def _check_job(job: str | None, out: Path | None, pick: str) -> None:
    from batchscale.planning.jobs.formats import check_format
    from batchscale.planning.recommend import PICKS

    if pick not in PICKS:
        raise PlanningError(f"--pick must be one of {', '.join(PICKS)}. Found {one_line(repr(pick))}.")
    if job is not None:
        check_format(job)
    if (job is None) != (out is None):
        raise PlanningError("--job FORMAT and --out FOLDER must be given together. Found one of them.")


def _print_plan(machine_plan: "MachinePlan", top: int) -> None:
    from batchscale.cli.answer import print_text
    from batchscale.cli.output import print_table, styled
    from batchscale.planning.answer import COLUMNS, NUMBERS, make_plan_answer
    from batchscale.planning.estimate_text import estimate_sentences
    from batchscale.planning.sentences import left_out_sentences, model_sentences, plan_notes

    heading = [text for text in (machine_plan.workload, machine_plan.goal and f"goal {machine_plan.goal}") if text]
    if heading:
        typer.echo(f"{styled(', '.join(heading), bold=True)}\n")
    answer = make_plan_answer(machine_plan, top)
    print_text(answer.recommendation)
    typer.echo()
    unit = machine_plan.unit
    cells = [
        (*row.cells[:-2], row.cells[-2].removesuffix(f" {unit}"), "; ".join((*row.tags, *row.notes)))
        for row in answer.rows
    ]
    print_table([*COLUMNS[:-2], f"cost ({unit})", "notes"], cells, right=NUMBERS)
    others = machine_plan.table.height - len(answer.rows)
    if others > 0:
        typer.echo(f"… and {count_text(others, 'more configuration')}; --csv writes all of them.")
    typer.echo()
    for sentence in plan_notes(machine_plan):
        print_text(sentence, "• ")
    typer.echo()
    left_out = left_out_sentences(machine_plan)
    hidden = len(left_out) - MOST_LEFT_OUT
    more = [f"{count_text(hidden, 'more was', 'more were')} left out; --json lists all."] if hidden > 0 else []
    models = [sentence for model in machine_plan.models for sentence in model_sentences(model)]
    estimates = estimate_sentences(machine_plan.estimates)
    for sentence in (*models, *estimates, *left_out[:MOST_LEFT_OUT], *more):
        print_text(sentence, dim=True)
