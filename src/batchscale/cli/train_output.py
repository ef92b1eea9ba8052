"""The output of ``batchscale train``: how the trial begins, its measurements, and how it ended."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from batchscale.run.single_trial import TrialStart
    from batchscale.study.trial import Row

VERSION = 1
_ENDS = {
    "budget": "Trained to the step budget",
    "goal": "Early stop reached",
    "diverged": "Training diverged (INFEASIBLE)",
    "stopped": "Stopped",
}


class MeasurementPrinter:
    """Prints measurements as the lines of a table or of JSON; a quiet one prints the end only, the chief the rest.

    ``out`` is the folder of the records; without it every trial is a new one, and nothing is printed of its start.
    """

    def __init__(self, steps: int, out: Path | None, *, as_json: bool, quiet: bool = False) -> None:
        self._steps, self._out, self._as_json, self._quiet = steps, out, as_json, quiet
        self._width = max(4, len(f"{steps:,}"))
        self._names: tuple[str, ...] = ()
        self._start: dict[str, int | str] = {}

    def begin(self, start: "TrialStart") -> None:
        """Print if a trial is started, continued or finished already; of a finished one the last measurement too."""
        self._start = {"trial": start.trial_id, "action": start.action}
        if self._quiet:
            return
        if self._out is not None:
            for line in self._describe(start):
                typer.echo(line, err=True)
        if start.action == "finished" and start.last_row is not None:
            self.show(start.last_row)

    def _describe(self, start: "TrialStart") -> list[str]:
        name = f"Trial {start.trial_id} in {self._out}"
        if start.action == "finished":
            return [
                f"{name} is finished: there is nothing to train. Pass more --steps to train it longer, or --new-trial "
                "to train another."
            ]
        if start.action == "continued":
            step = start.last_row[0] if start.last_row else 0
            return [f"{name} is continued from step {step:,}."]
        others = [
            f"Trial {number} ({values}) is not finished: train with its values to continue it."
            for number, values in start.unfinished.items()
        ]
        return [f"{name} is started.", *others]

    def show(self, row: "Row", examples_per_s: float | None = None) -> None:
        """Print one measurement."""
        step, values = row
        if self._quiet:
            return
        if self._as_json:
            from batchscale.cli.output import print_json_line

            print_json_line({"version": VERSION, **self._start, "step": step, **values})
            return
        if not self._names:
            self._names = tuple(values)
            header = "  ".join(["step".rjust(self._width), *self._names])
            typer.echo(typer.style(header, bold=True) if sys.stdout.isatty() else header)
        cells = [f"{values[name]:.6g}".rjust(len(name)) for name in self._names]
        speed = f"  {examples_per_s:,.0f} examples/s" if examples_per_s else ""
        typer.echo("  ".join([f"{step:,}".rjust(self._width), *cells]) + speed)

    def close(self, reason: str, step: int) -> None:
        """Print the end of the trial."""
        typer.echo(f"{_ENDS[reason]} at step {step:,} of {max(step, self._steps):,}.", err=self._as_json)
