"""``batchscale init``: a commented experiment file."""

from pathlib import Path
from typing import Annotated

import typer


def init(
    name: Annotated[str, typer.Argument(help="The name of the file; '.toml' is added.")] = "experiment",
    workload: Annotated[
        str | None,
        typer.Option(help="Fill in the goal, budget and ranges of this workload, dataset/model/optimizer."),
    ] = None,
) -> None:
    """Write a commented experiment file that runs as it is.

    With --workload it has the ranges and schedule of a workload, the goal of the paper and a budget to reach it.
    """
    from batchscale.errors import SpecError, one_line
    from batchscale.init_file import starting_text
    from batchscale.spec.workload_name import WorkloadName

    path = Path(name if name.endswith(".toml") else f"{name}.toml")
    text = starting_text(None if workload is None else WorkloadName.parse(workload))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SpecError(f"The file must be new: '{one_line(path)}' already exists. Pass another name.") from None
    except (OSError, ValueError) as error:
        raise SpecError(f"'{one_line(path)}' cannot be written: {one_line(error)}. Pass another name.") from None
    typer.echo(f"Wrote {path}. Next: batchscale validate {path}")
