"""Settings of the engine: sizes and limits. Does not import JAX."""

from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import SpecError


@dataclass(frozen=True)
class EngineSettings:
    """Settings of an engine; none of them changes a trial's result, up to the order of float sums.

    ``checkpoint_dir`` may be a remote path; None keeps states in memory only. ``microbatch`` and ``population`` None
    let the engine choose. ``max_finished_bytes`` limits the last states of ended trials. ``devices`` is the number of
    devices of the process that train each trial together (None: all of them), and ``exact`` adds their gradients in an
    order that does not depend on their number.
    """

    checkpoint_dir: str | Path | None = None
    microbatch: int | None = None
    population: int | None = None
    checkpoint_interval_s: float = 60.0
    max_finished_bytes: int = 2**29
    devices: int | None = 1
    exact: bool = False

    def __post_init__(self) -> None:
        for name in ("microbatch", "population", "devices"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SpecError(f"{name} must be a whole number of at least 1. Found {value}.")
