"""``batchscale workloads``: every workload by name, with its parts, its size, and whether its data is there."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchscale.cli.output import print_json, print_table

if TYPE_CHECKING:
    from batchscale.workloads.catalogue import Parts


def workloads(
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="A folder that holds data sets; before BATCHSCALE_DATA.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List every workload with its parts, parameters, training-set size and whether its data is present."""
    from batchscale.workloads.catalogue import named_workloads
    from batchscale.workloads.datasets.facts import dataset_names
    from batchscale.workloads.models.facts import MODELS
    from batchscale.workloads.optimizer_facts import OPTIMIZERS
    from batchscale.workloads.schedule_facts import SCHEDULES

    rows = [_describe(name, data_dir) for name in named_workloads()]
    names = {
        "datasets": dataset_names(),
        "models": ("fc_WIDTH_WIDTH_…", *MODELS),
        "optimizers": tuple(OPTIMIZERS),
        "schedules": tuple(SCHEDULES),
    }
    if as_json:
        print_json({"workloads": rows, **{kind: list(found) for kind, found in names.items()}})
        return
    columns = ("workload", "task", "schedule", "parameters", "training set", "data")
    shown = [[row[key] for key in ("name", "task", "schedule", "num_parameters", "num_train_examples")] for row in rows]
    present = ["yes" if row["data_present"] else "missing" for row in rows]
    print_table(columns, [[*row, data] for row, data in zip(shown, present, strict=True)], right=(3, 4))
    typer.echo("\nAny data set, model and optimizer that fit together make a workload (dataset/model/optimizer):")
    for kind, found in names.items():
        typer.echo(f"  {kind}: {', '.join(found)}")


def _describe(name: Any, data_dir: Path | None) -> dict[str, Any]:
    from batchscale.spec import WorkloadSpec
    from batchscale.workloads.catalogue import find_parts
    from batchscale.workloads.datasets.presence import find_dataset

    parts = find_parts(WorkloadSpec(name))
    found = find_dataset(name.dataset, data_dir)
    return {
        "name": str(name),
        "dataset": name.dataset,
        "model": name.model,
        "optimizer": name.optimizer,
        "task": str(parts.dataset.task),
        "schedule": parts.tuning.schedule.name,
        "num_parameters": _num_parameters(parts),
        "num_train_examples": parts.dataset.num_train_examples,
        "data_present": found.path is not None or not found.needs_files,
    }


def _num_parameters(parts: "Parts") -> int | None:
    outputs = parts.dataset.num_outputs
    return None if outputs is None else _count(parts.model.name, parts.dataset.input_shape, outputs)


@cache
def _count(model: str, shape: tuple[int, ...], num_outputs: int) -> int:
    from batchscale.workloads.models.build import Shape
    from batchscale.workloads.models.facts import model_facts
    from batchscale.workloads.parameters import count_parameters

    return count_parameters(model_facts(model, {}), Shape(shape, num_outputs))
