"""How the engine runs: sizes and limits. Free of JAX."""

from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import SpecError


@dataclass(frozen=True)
class EngineSettings:
    """How the engine runs; nothing here changes what a trial is, up to float reordering.

    ``checkpoint_dir`` may be a remote path; None keeps states in memory only. ``microbatch`` and ``population`` None
    let the engine choose. ``memory_bytes`` is what one process may use (None: its share of the machine).
    ``max_shelf_bytes`` is for the last states of ended trials. ``chunk_s`` bounds how long the device runs before
    ``should_stop`` is asked again. ``devices`` is how many devices of the process train each trial together (None: all
    of them), and ``exact`` adds their gradients in an order that does not depend on how many there are.
    """

    checkpoint_dir: str | Path | None = None
    microbatch: int | None = None
    population: int | None = None
    divergence_factor: float = 1000.0
    cache_dir: str | Path | None = None
    checkpoint_interval_s: float = 60.0
    max_checkpoint_bytes: int = 20 * 2**30
    max_parked_bytes: int = 2 * 2**30
    max_shelf_bytes: int = 2**29
    memory_bytes: int | None = None
    chunk_s: float = 1.0
    devices: int | None = 1
    exact: bool = False

    def __post_init__(self) -> None:
        for name in ("microbatch", "population", "devices"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SpecError(f"{name} is a whole number of at least 1. Found {value}.")
        if not self.divergence_factor > 1:
            raise SpecError(f"divergence_factor is a multiple above 1. Found {self.divergence_factor:g}.")
