"""``batchscale suggest --tokens``: the values to launch a language model with, and files for its trainer."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from batchscale.errors import SpecError, one_line

if TYPE_CHECKING:
    from batchscale.planning.launch import LaunchPlan, LaunchRequest

VERSION = 1
SEQUENCE = 2048  # tokens, unless a user or the records say otherwise
NAMES = {
    "batch_size": "batch size (tokens)",
    "learning_rate": "learning rate",
    "beta2": "β2",
    "weight_decay": "weight decay",
}


@dataclass(frozen=True)
class LaunchOptions:
    """The options of ``suggest --tokens``."""

    path: Path | None
    tokens: str
    parameters: str | None
    batch_size: str | None
    sequence: int | None
    schedule: str
    stages: str | None
    multiple_of: int
    goal: str | None
    workload: str | None
    export: str | None
    out: Path | None
    devices: int
    micro_batch_size: int


def suggest_launch(options: LaunchOptions, *, as_json: bool) -> None:
    """Print the values for a planned training, and write its launch file."""
    from batchscale.cli.output import print_json
    from batchscale.planning.launch_files import DeviceShare, launch_file
    from batchscale.records.output_file import write_output

    if options.out is not None and options.export is None:
        raise SpecError("--out needs --export, the program that the launch file is for. Found --out alone.")
    launch = _plan(options)
    share = DeviceShare(options.devices, options.micro_batch_size)
    text = None if options.export is None else launch_file(launch, options.export, share)
    if text is not None and options.out is not None:
        write_output(options.out, text)
    if as_json:
        print_json(_json(launch, text))
        return
    if text is None or options.out is not None:
        _print(launch)
    else:
        typer.echo(text, nl=False)


def _plan(options: LaunchOptions) -> "LaunchPlan":
    from batchscale.cli.law_inputs import CARRIED, read_curves, read_laws
    from batchscale.errors import AnalysisError
    from batchscale.planning.launch import plan_launch, plan_measured

    request = _request(options)
    if options.path is None:
        return plan_launch(request, read_laws([])[1], f"the law of {CARRIED}")
    from batchscale.analysis.grid import is_grid_file

    if is_grid_file(options.path):
        source, laws, _ = read_laws([options.path], options.sequence)
        return plan_launch(request, laws, f"the law of {source}")
    curves = read_curves(options.path, options.sequence, options.workload, options.goal)
    if len(curves) != 1:
        listed = ", ".join(one_line(curve.name, 80) for curve in curves[:6])
        raise AnalysisError(f"--workload must select one workload. Found {len(curves)} ({listed}).")
    tokens = curves[0].answer.unit.tokens_per_example
    if options.sequence is None and tokens is None:
        raise SpecError(
            "Examples become tokens by --sequence, the tokens of an example. Found none, and none in the records; pass "
            "--sequence 1024, say."
        )
    return plan_measured(replace(request, sequence=options.sequence or tokens or SEQUENCE), curves[0])


def _request(options: LaunchOptions) -> "LaunchRequest":
    from batchscale.planning.launch import LaunchRequest, ScheduleKind
    from batchscale.spec.amounts import parse_amount

    if options.parameters is None:
        raise SpecError("--tokens needs --parameters: learning rate and weight decay depend on the model. Found none.")
    kinds = [kind.value for kind in ScheduleKind]
    kind = "steps" if options.stages is not None and options.schedule == "constant" else options.schedule
    if kind not in kinds:
        raise SpecError(f"--schedule must be one of {', '.join(kinds)}. Found '{one_line(options.schedule)}'.")
    if (options.stages is not None) != (kind == "steps"):
        raise SpecError("--stages belong to --schedule steps, which needs them. Found one without the other.")
    batch = None if options.batch_size is None else parse_amount(options.batch_size, "--batch-size")
    return LaunchRequest(
        parse_amount(options.tokens, "--tokens"),
        parse_amount(options.parameters, "--parameters"),
        options.sequence or SEQUENCE,
        batch,
        ScheduleKind(kind),
        _parse_stages(options.stages or ""),
        options.multiple_of,
    )


def _parse_stages(text: str) -> tuple[tuple[float, float], ...]:
    """Parse ``0:256k 10B:1M``: tokens, and the batch size in tokens from there on."""
    from batchscale.spec.amounts import parse_amount

    stages = []
    for word in text.replace(",", " ").split():
        start, colon, batch = word.partition(":")
        if not colon:
            raise SpecError(f"--stages are pairs such as '0:256k 10B:1M'. Found '{one_line(word, 60)}'.")
        begin = 0.0 if start.strip("0.") == "" and start else parse_amount(start, "--stages")
        stages.append((begin, parse_amount(batch, "--stages")))
    return tuple(stages)


def _print(launch: "LaunchPlan") -> None:
    from batchscale.cli.law import value_text
    from batchscale.cli.output import print_table
    from batchscale.formatting import metaparameter_text, rounded_text
    from batchscale.planning.launch import THEORIES

    def text(name: str, value: float) -> str:
        return metaparameter_text(value) if name != "batch_size" else value_text(name, value)

    request = launch.request
    typer.echo(f"To train {rounded_text(request.parameters)} parameters on {rounded_text(request.tokens)} tokens:")
    rows = [
        (
            NAMES[item.name],
            text(item.name, item.value),
            None
            if item.low is None or item.high is None
            else f"{text(item.name, item.low)} to {text(item.name, item.high)}",
            item.basis.value,
            item.reason,
        )
        for item in launch.values
    ]
    print_table(("value", "suggested", "90 % interval", "rests on", "how"), rows, right=(1,))
    typer.echo(f"\nBatch sizes, as whole sequences of {request.sequence:,} tokens ({launch.steps:,} steps):")
    ends = [*(stage.start for stage in launch.stages[1:]), request.tokens]
    stages = [
        (
            rounded_text(stage.start) if stage.start else "0",
            rounded_text(float(end)),
            stage.batch_size,
            stage.batch_size * request.sequence,
        )
        for stage, end in zip(launch.stages, ends, strict=True)
    ]
    print_table(("from token", "to", "sequences", "tokens"), stages, right=(0, 1, 2, 3))
    typer.echo()
    for note in launch.notes:
        typer.echo(note)
    typer.echo("Schedules, and what is known of each:")
    for kind, theory in THEORIES.items():
        chosen = " (chosen)" if kind is request.schedule else ""
        typer.echo(f"  {kind.value}{chosen}: {theory}")


def _json(launch: "LaunchPlan", text: str | None) -> dict[str, Any]:
    from batchscale.planning.launch import THEORIES

    request = launch.request
    return {
        "version": VERSION,
        "tokens": request.tokens,
        "parameters": request.parameters,
        "sequence": request.sequence,
        "values": {
            item.name: {
                "value": item.value,
                "low": item.low,
                "high": item.high,
                "basis": item.basis.value,
                "reason": item.reason,
            }
            for item in launch.values
        },
        "schedule": request.schedule.value,
        "stages": [
            {"start": stage.start, "sequences": stage.batch_size, "tokens": stage.batch_size * request.sequence}
            for stage in launch.stages
        ],
        "steps": launch.steps,
        "notes": list(launch.notes),
        "theories": {kind.value: theory for kind, theory in THEORIES.items()},
        "launch_file": text,
    }
