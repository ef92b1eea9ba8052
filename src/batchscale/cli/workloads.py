"""``batchscale workloads``: every workload by name, its parts, its size, and whether its data is here."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchscale.cli.output import print_json, print_table

if TYPE_CHECKING:
    from batchscale.spec import WorkloadName

EXTRA = ("digits/fc_64/nesterov_momentum", "ptb/transformer_shallow/nesterov_momentum", "noisy_quadratic/quadratic/sgd")


def workloads(
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Where the data sets are.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the workloads: the paper's 35 by their published names, a few more, and the parts to combine."""
    from batchscale.spec import WorkloadName
    from batchscale.workloads.catalogue import paper_workloads
    from batchscale.workloads.datasets import dataset_names
    from batchscale.workloads.models.facts import MODELS
    from batchscale.workloads.optimizer_facts import OPTIMIZERS
    from batchscale.workloads.schedule_facts import SCHEDULES

    names = (*paper_workloads(), *(WorkloadName.parse(text) for text in EXTRA))
    rows = _describe(names, data_dir)
    parts = {
        "datasets": sorted(dataset_names()),
        "models": sorted([*MODELS, "fc_WIDTH_WIDTH_…"]),
        "optimizers": sorted(OPTIMIZERS),
        "schedules": sorted(SCHEDULES),
    }
    if as_json:
        print_json({"workloads": rows, "parts": parts})
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


def _describe(names: tuple["WorkloadName", ...], data_dir: Path | None) -> list[dict[str, Any]]:
    from batchscale.spec import WorkloadSpec
    from batchscale.workloads.catalogue import find_parts
    from batchscale.workloads.datasets.presence import find_dataset
    from batchscale.workloads.models.counts import NUM_PARAMETERS

    rows = []
    for name in names:
        parts = find_parts(WorkloadSpec(name))
        presence = find_dataset(name.dataset, data_dir)
        rows.append(
            {
                "name": str(name),
                "dataset": name.dataset,
                "model": name.model,
                "optimizer": name.optimizer,
                "schedule": parts.tuning.schedule.name,
                "num_parameters": NUM_PARAMETERS[name.dataset, name.model],
                "num_train_examples": parts.dataset.num_train_examples,
                "data_present": presence.path is not None or not presence.needs_files,
            }
        )
    return rows
