"""``batchscale init``: a commented experiment file."""

import os
from pathlib import Path
from typing import Annotated

import typer


def init(
    name: Annotated[str, typer.Argument(help="The name of the file; '.toml' is added.")] = "experiment",
    workload: Annotated[
        str | None,
        typer.Option(help="Fill in the goal, budget and ranges of this workload, dataset/model/optimizer."),
    ] = None,
    trainer: Annotated[
        Path | None,
        typer.Option(metavar="SCRIPT", help="For your own training script. If it does not exist, one is written."),
    ] = None,
) -> None:
    """Write a commented experiment file that runs as it is.

    With --workload it has the ranges and schedule of a workload, the goal of the paper and a budget to reach it. With
    --trainer it is for your own training script.
    """
    from batchscale.errors import SpecError
    from batchscale.init_file import script_text, starting_text, trainer_text
    from batchscale.spec.workload_name import WorkloadName

    path = Path(name if name.endswith(".toml") else f"{name}.toml")
    if trainer is None:
        _write_new(path, starting_text(None if workload is None else WorkloadName.parse(workload)))
        typer.echo(f"Wrote {path}. Next: batchscale validate {path}")
        return
    if workload is not None:
        raise SpecError("--trainer is for your own training script, --workload for a built-in one. Found both.")
    script = os.path.relpath(trainer, path.parent)  # commands run in the folder of the file
    is_new = not trainer.exists()
    _write_new(path, trainer_text(script))
    if is_new:
        _write_new(trainer, script_text())
    typer.echo(f"Wrote {path}{f' and {trainer}' if is_new else ''}. Next: batchscale trainer check {path}")


def _write_new(path: Path, text: str) -> None:
    from batchscale.errors import SpecError, one_line

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SpecError(f"The file must be new: '{one_line(path)}' already exists. Pass another name.") from None
    except (OSError, ValueError) as error:
        raise SpecError(f"'{one_line(path)}' cannot be written: {one_line(error)}. Pass another name.") from None
