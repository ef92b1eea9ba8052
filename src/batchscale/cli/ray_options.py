"""What ``batchscale run --runner ray`` needs to know before it starts, and says."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from batchscale.run.run_settings import RunSettings
    from batchscale.spec.experiment import RayPlan

VARIABLE = "RAY_ADDRESS"
"""Where Ray's own tools look for the cluster, and what it tells the jobs that are submitted to it."""


def find_address(runner: str, given: str | None) -> str | None:
    """The address of the Ray cluster; None for a local one, and with another runner.

    Raises:
        RunError: an address was given for another runner.
    """
    if runner == "ray":
        return given or os.environ.get(VARIABLE) or None
    if given is not None:
        from batchscale.errors import RunError

        raise RunError(f"--ray-address is for --runner ray. Found --runner {runner}; give one or leave out the other.")
    return None


def note_ray(settings: "RunSettings", plan: "RayPlan", out: Path, quiet: bool) -> None:
    """Say before the run what becomes of a trial whose node is lost."""
    if settings.runner == "ray" and settings.ray_address is not None and not quiet:
        from batchscale.records.tree.layout import RunPaths

        place = f"{RunPaths(out).checkpoints.resolve()} on nodes that see this folder"
        if plan.checkpoints is not None:
            place = f"{plan.checkpoints} on nodes that reach it"
        typer.echo(
            f"Trials of a lost node go on from their last checkpoint in {place}; elsewhere they are trained again from "
            "their seed.",
            err=True,
        )
