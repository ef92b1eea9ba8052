"""``batchscale workloads``: every workload by name, its parts, its size, and whether its data is here."""

from pathlib import Path
from typing import Annotated, Any

import typer

from batchscale.cli.output import print_json, print_table

VERSION = 1


def workloads(
    data_dir: Annotated[Path | None, typer.Option(help="Where the data sets are.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """List the workloads: the paper's 35 by their published names, a few more, and the parts to combine."""
    from batchscale.workloads.datasets.declaration import dataset_names
    from batchscale.workloads.models.declaration import model_names
    from batchscale.workloads.optimizers.declaration import OPTIMIZERS
    from batchscale.workloads.schedules.declaration import SCHEDULES

    rows = _describe(data_dir)
    parts = {
        "datasets": list(dataset_names()),
        "models": list(model_names()),
        "optimizers": list(OPTIMIZERS.all()),
        "schedules": list(SCHEDULES.all()),
    }
    if as_json:
        print_json({"version": VERSION, "workloads": rows, "parts": parts})
        return
    columns = ("workload", "schedule", "parameters", "training examples", "data")
    lines = [
        (
            r["name"],
            r["schedule"],
            r["num_parameters"],
            r["num_train_examples"],
            "here" if r["data_present"] else "missing",
        )
        for r in rows
    ]
    print_table(columns, lines, right=(2, 3))
    typer.echo("\nAny parts that fit together make a workload:")
    for kind, options in parts.items():
        typer.echo(f"  {kind:<11} {', '.join(options)}")
    typer.echo("Missing data: batchscale data list says how to get it. Your own: the key workload.file.")


def _describe(data_dir: Path | None) -> list[dict[str, Any]]:
    from batchscale.spec.experiment import WorkloadSpec
    from batchscale.spec.workload_name import WorkloadName
    from batchscale.workloads.datasets.files.locations import find_dataset
    from batchscale.workloads.published import MORE_WORKLOADS, PAPER_WORKLOADS
    from batchscale.workloads.registry import find_parts

    rows = []
    for text, num_parameters in {**PAPER_WORKLOADS, **MORE_WORKLOADS}.items():
        name = WorkloadName.parse(text)
        parts = find_parts(WorkloadSpec(name))
        presence = find_dataset(name.dataset, data_dir)
        rows.append(
            {
                "name": text,
                "dataset": name.dataset,
                "model": name.model,
                "optimizer": name.optimizer,
                "schedule": parts.tunables.schedule.name,
                "num_parameters": num_parameters,
                "num_train_examples": parts.dataset.num_train_examples,
                "data_present": presence.path is not None or not presence.needs_files,
            }
        )
    return rows
