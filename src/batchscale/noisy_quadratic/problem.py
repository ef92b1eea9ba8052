"""The noisy quadratic problem, and the spectrum of curvatures and noise that stands for it.

The loss is ``½ Σ h_i θ_i²`` with curvatures ``h_i = i^-p``; the gradient of a batch of size B is ``h·θ`` plus noise of
variance ``c_i/B``, independent between coordinates and steps (Zhang et al., 2019, "Which algorithmic choices matter at
which batch sizes?").
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import SpecError, UnknownNameError, one_line, suggest_names
from batchscale.spec.experiment import Options

Floats = NDArray[np.float64]
MAX_DIMENSION = 10_000_000
MAX_VARIANCE = 1e30  # times the largest dimension a single-precision number still
MIN_CURVATURE = 1e-30


@dataclass(frozen=True)
class NoisyQuadratic:
    """The problem: its number of coordinates, curvatures, noise and where training starts.

    ``noise`` is c, the variance of the gradient's noise at batch size 1: the same in every coordinate, or
    proportional to the curvature with ``noise_like_curvature`` (c_i = c·h_i, as Zhang et al. have it). Training starts
    at distance √``initial_variance`` from the minimum in every coordinate, on a random side of it.
    """

    dimension: int = 100
    noise: float = 1.0
    noise_like_curvature: bool = True
    curvature_power: float = 1.0
    initial_variance: float = 1.0

    def __post_init__(self) -> None:
        if (
            isinstance(self.dimension, bool)
            or not isinstance(self.dimension, int)
            or not 1 <= self.dimension <= MAX_DIMENSION
        ):
            raise SpecError(
                f"noisy_quadratic: dimension is a whole number from 1 to {MAX_DIMENSION:,}. "
                f"Found {one_line(repr(self.dimension))}."
            )
        for name in ("noise", "curvature_power", "initial_variance"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_VARIANCE:
                raise SpecError(
                    f"noisy_quadratic: {name} is a number from 0 to {MAX_VARIANCE:g}. Found {one_line(repr(value))}."
                )
        least = -self.curvature_power * math.log10(self.dimension)
        if least < math.log10(MIN_CURVATURE):
            raise SpecError(
                f"noisy_quadratic: the smallest curvature, dimension^-curvature_power, is at least {MIN_CURVATURE:g}, "
                f"or single precision cannot tell it from 0. Found 10^{least:.4g}; lower curvature_power or dimension."
            )
        if not isinstance(self.noise_like_curvature, bool):
            raise SpecError("noisy_quadratic: noise_like_curvature is true or false.")

    @property
    def curvatures(self) -> Floats:
        """The curvature h_i of each coordinate."""
        return np.arange(1, self.dimension + 1, dtype=np.float64) ** -self.curvature_power

    @property
    def noise_variances(self) -> Floats:
        """The variance c_i of the gradient's noise in each coordinate at batch size 1."""
        return self.noise * (self.curvatures if self.noise_like_curvature else np.ones(self.dimension))

    @property
    def spectrum(self) -> "Spectrum":
        """Curvatures, noise and start of every coordinate."""
        start = np.full(self.dimension, float(self.initial_variance))
        return Spectrum(self.curvatures, self.noise_variances, start, np.ones(self.dimension))


@dataclass(frozen=True)
class Spectrum:
    """Curvatures h with the noise c and the second moment of θ at the start; ``counts`` coordinates share each.

    ``counts`` need not be whole: an estimated spectrum is a density times the number of parameters.
    """

    curvatures: Floats
    noise: Floats
    start: Floats
    counts: Floats

    def __post_init__(self) -> None:
        parts = {name: np.asarray(getattr(self, name), dtype=np.float64) for name in self.__dataclass_fields__}
        shapes = {part.shape for part in parts.values()}
        if len(shapes) > 1 or any(part.ndim != 1 or not part.size for part in parts.values()):
            raise SpecError(f"The parts of a spectrum are lists of one length. Found the shapes {sorted(shapes)}.")
        for name, part in parts.items():
            if not np.all(np.isfinite(part)) or np.any(part < 0) or (name == "curvatures" and np.any(part == 0)):
                kind = "positive" if name == "curvatures" else "at least 0"
                raise SpecError(f"The {name} of a spectrum are finite and {kind}. Found {float(np.min(part)):g}.")
            object.__setattr__(self, name, part)

    @property
    def initial_loss(self) -> float:
        """The expected loss before the first step."""
        return float(0.5 * np.sum(self.counts * self.curvatures * self.start))

    def binned(self, bins: int) -> "Spectrum":
        """Return the spectrum with curvatures rounded down to ``bins`` geometric steps, and c and start averaged there.

        Noise keeps its ratio to curvature. With 100 bins this is the spectrum that Zhang et al. calculate with.
        """
        edges = np.geomspace(self.curvatures.max(), self.curvatures.min(), bins)
        place = np.minimum(np.searchsorted(-edges, -self.curvatures * (1 + 1e-12)), bins - 1)
        counts: Floats = np.bincount(place, self.counts, bins).astype(np.float64)
        filled = counts > 0
        ratio = np.bincount(place, self.counts * self.noise / self.curvatures, bins)
        start = np.bincount(place, self.counts * self.start, bins)
        counts = counts[filled]
        return Spectrum(edges[filled], edges[filled] * ratio[filled] / counts, start[filled] / counts, counts)


def parse_problem(options: Options) -> NoisyQuadratic:
    """Return the problem that the options of the data set ``noisy_quadratic`` describe."""
    valid = NoisyQuadratic.__dataclass_fields__
    for key in options:
        if key not in valid:
            raise UnknownNameError(f"noisy_quadratic has no option '{one_line(key)}'; {suggest_names(key, valid)}")
    values: dict[str, Any] = dict(options)  # the class itself checks the kind of each value
    return NoisyQuadratic(**values)
