"""``batchscale init``: a commented experiment file to start from."""

from pathlib import Path
from typing import Annotated

import typer


def init(
    name: Annotated[str, typer.Argument(help="Name of the file; '.toml' is added.")] = "experiment",
    workload: Annotated[
        str | None,
        typer.Option(help="dataset/model/optimizer: its ranges, schedule, the paper's goal, and a budget to reach it."),
    ] = None,
) -> None:
    """Write a commented experiment file that runs as it is."""
    from batchscale.errors import SpecError, one_line
    from batchscale.init_file import starting_text
    from batchscale.spec.workload_name import WorkloadName

    path = Path(name if name.endswith(".toml") else f"{name}.toml")
    text = starting_text(None if workload is None else WorkloadName.parse(workload))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SpecError(f"init never overwrites: '{one_line(path)}' exists already. Choose another name.") from None
    except (OSError, ValueError) as error:
        raise SpecError(f"init cannot write '{one_line(path)}': {one_line(error)}.") from None
    typer.echo(f"Wrote {path}. Next: batchscale validate {path}")
