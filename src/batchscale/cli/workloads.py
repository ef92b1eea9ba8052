"""``batchscale workloads``: the workloads by name, with their parts, size and data."""

from pathlib import Path
from typing import Annotated, Any

import typer

from batchscale.cli.output import print_json, print_table
from batchscale.cli.selection import DATA_DIR_HELP, JSON_HELP

VERSION = 1


def workloads(
    data_dir: Annotated[Path | None, typer.Option(help=DATA_DIR_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """List the workloads, and the parts to combine into others.

    The 35 workloads of the paper have their published names.
    """
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
            "present" if r["data_present"] else "missing",
        )
        for r in rows
    ]
    print_table(columns, lines, right=(2, 3))
    typer.echo("\nCombine parts that fit together into other workloads:")
    for kind, options in parts.items():
        typer.echo(f"  {kind:<11} {', '.join(options)}")
    typer.echo("For missing data, see batchscale data list. For your own workload, see the key workload.file.")


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
