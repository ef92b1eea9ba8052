"""The work of one training step: operations, bytes moved, parameters and memory, whatever device does it.

It comes from a compiled program (``batchscale calibrate --work``), from a counter in a training script, or from the
shape of a language model on paper. Files of work have a row per batch size; two rows tell the part of an example from
the part of a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from batchscale.csv_lines import parse_csv_lines
from batchscale.errors import PlanningError, one_line
from batchscale.planning.accelerators import PRECISIONS
from batchscale.planning.csv_rows import CsvFile, CsvRow, csv_rows, read_csv_rows
from batchscale.planning.memory import MemoryNeed

KINDS = ("language", "convolution", "other")
"""The kinds of programs, each with its own record of how much of a device's peak it uses."""
CONTENT, NEEDED = "a table of work", ("batch_size", "flops", "parameters")
WORK_COLUMNS = ("workload", "kind", "precision", "batch_size", "flops", "bytes", "parameters", "memory_bytes")
BYTES_OF = {"float32": 4, "tf32": 4, "float16": 2, "bfloat16": 2, "float8": 2}
"""Bytes of a stored weight, activation or gradient; a program in float8 stores them in 16 bits."""


@dataclass(frozen=True)
class StepWork:
    """The work of a step on one device with m examples.

    Attributes:
        kind: One of ``KINDS``.
        precision: Of the matrix products; one of ``PRECISIONS``.
        flops_per_example: Operations of an example, forward and backward.
        bytes_per_example: Bytes of activations that an example moves to and from memory.
        parameters: Trained numbers.
        flops_per_pass: Operations of each forward and backward pass, whatever the number of examples.
        bytes_per_pass: Bytes that each such pass moves, mostly weights.
        bytes_per_update: Bytes that the update of the weights moves.
        memory: Its need of memory; None: not known, every batch is taken to fit.
        workload: Its name, as in records and step times.
    """

    kind: str
    precision: str
    flops_per_example: float
    bytes_per_example: float
    parameters: float
    flops_per_pass: float = 0.0
    bytes_per_pass: float = 0.0
    bytes_per_update: float = 0.0
    memory: MemoryNeed | None = None
    workload: str | None = None

    @property
    def gradient_bytes(self) -> float:
        """Return the bytes of all gradients, which devices exchange."""
        return self.parameters * BYTES_OF[self.precision]


def read_work(path: Path, workload: str | None = None) -> StepWork:
    """Return the work of a CSV file of ``WORK_COLUMNS``.

    Args:
        path: The file.
        workload: The workload of the curve; rows of others are not used.

    Raises:
        PlanningError: a value is missing or not possible, or the rows are of other or several workloads.
    """
    return _work_of(read_csv_rows(path, CONTENT, NEEDED), workload)


def parse_work(text: str, where: str, workload: str | None = None) -> StepWork:
    """Return the work of the lines of such a file; ``where`` names their place in messages."""
    return _work_of(csv_rows(parse_csv_lines(text, where, PlanningError), where, CONTENT, NEEDED), workload)


def _work_of(file: CsvFile, workload: str | None) -> StepWork:
    rows = [row for row in file.rows if workload is None or row.text("workload") in ("", workload)]
    names = sorted({row.text("workload") for row in rows or file.rows} - {""})
    if not rows or len(names) > 1:
        raise PlanningError(
            f"{file.where}: the work must be of one workload, that of the curve{f' ({workload})' if workload else ''}. "
            f"Found {one_line(', '.join(names), 200)}."
        )
    kinds, precisions = ({row.text(name) or default for row in rows} for name, default in _DEFAULTS)
    for found_values, valid, name in ((kinds, KINDS, "kind"), (precisions, PRECISIONS, "precision")):
        if len(found_values) > 1 or not found_values <= set(valid):
            raise PlanningError(
                f"{file.where}: {name} must be one of {', '.join(valid)}, the same in all rows. Found "
                f"{one_line(', '.join(sorted(found_values)), 200)}."
            )
    return _fit(rows, kinds.pop(), precisions.pop(), names[0] if names else workload)


_DEFAULTS = (("kind", "other"), ("precision", "float32"))


def _fit(rows: Sequence[CsvRow], kind: str, precision: str, workload: str | None) -> StepWork:
    sizes = [row.required("batch_size") for row in rows]
    flops, flops_fixed = _line(rows, sizes, "flops")
    moved, moved_fixed = _line(rows, sizes, "bytes")
    used, used_fixed = _line(rows, sizes, "memory_bytes")
    parameters = rows[0].number("parameters")
    if flops <= 0 or parameters is None:
        raise PlanningError(
            f"{rows[0].place}: flops must grow with the batch size, and parameters must be above 0. Found a growth of "
            f"{flops:g} per example and {parameters} parameters."
        )
    memory = MemoryNeed.measured(used_fixed, used) if used > 0 else None
    return StepWork(
        kind, precision, flops, moved, parameters, flops_fixed, moved_fixed, memory=memory, workload=workload
    )  # fmt: skip


def _line(rows: Sequence[CsvRow], sizes: Sequence[int], name: str) -> tuple[float, float]:
    """Return slope and intercept of a column through the smallest and the largest batch size."""
    values = {size: value for size, row in zip(sizes, rows, strict=True) if (value := row.number(name)) is not None}
    if not values:
        return 0.0, 0.0
    small, large = min(values), max(values)
    if small == large:
        return values[small] / small, 0.0
    slope = (values[large] - values[small]) / (large - small)
    return slope, max(values[small] - slope * small, 0.0)
