"""The curvature and noise of a real workload, measured at a state, as a spectrum of the noisy quadratic model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchscale.errors import AnalysisError
from batchscale.noisy_quadratic.problem import Floats, Spectrum

SpectralMeasure = tuple[Floats, Floats]  # nodes (curvatures) and weights of a spectral measure
FLAT = 1e-7  # curvatures below this share of the largest are rounding, and move no loss


@dataclass(frozen=True, eq=False)
class MeasuredSpectrum:
    """Spectral measures under the Gauss-Newton matrix of the training loss at a state.

    Attributes:
        start: Of the way from the first parameters of the trial to this state.
        noise: Of samples of the noise in the gradient of one example.
        density: Of random vectors of signs: their mean is the spectrum, and its weights add up to ``parameters``.
        parameters: The number of parameters.
        products: The products with the matrix.
        examples: The examples that products and gradients read.
    """

    start: SpectralMeasure
    noise: tuple[SpectralMeasure, ...]
    density: tuple[SpectralMeasure, ...]
    parameters: int
    products: int
    examples: int

    @property
    def trace(self) -> tuple[float, float]:
        """The trace of the matrix by Hutchinson's estimate, and its standard error."""
        traces = [float(nodes @ weights) for nodes, weights in self.density]
        return float(np.mean(traces)), float(np.std(traces, ddof=1) / np.sqrt(len(traces)))

    @property
    def noise_trace(self) -> tuple[float, float]:
        """The trace of the covariance of an example's gradient, and its standard error."""
        traces = [float(np.sum(weights)) for _, weights in self.noise]
        return float(np.mean(traces)), float(np.std(traces, ddof=1) / np.sqrt(len(traces)))

    def spectrum(self, samples: Sequence[int] | None = None, bins: int = 32) -> Spectrum:
        """Return the measures as a spectrum; ``samples`` are the samples of noise to use, with repetition.

        Start and noise enter the expected loss linearly, so each node needs one of them only. They are gathered in
        ``bins`` geometric bins of curvature.

        Raises:
            AnalysisError: The matrix has no positive curvature, or there is nothing to train or no noise.
        """
        chosen = range(len(self.noise)) if samples is None else samples
        drawn = [self.noise[i] for i in chosen]
        nodes = np.concatenate([self.start[0], *(nodes for nodes, _ in drawn)])
        start = np.concatenate([self.start[1], *(np.zeros(len(nodes)) for nodes, _ in drawn)])
        noise = np.concatenate([np.zeros(len(self.start[0])), *(weights / len(drawn) for _, weights in drawn)])
        curved = nodes > FLAT * max(float(nodes.max()), 0.0)
        if not curved.any() or not start[curved].any() or not noise[curved].any():
            raise AnalysisError(
                "The noisy quadratic model needs a loss with curvature, a state away from the start of training, and "
                "noise in its gradients. Found none of one of them."
            )
        return gather(Spectrum(nodes[curved], noise[curved], start[curved], np.ones(int(curved.sum()))), bins)


def gather(spectrum: Spectrum, bins: int) -> Spectrum:
    """Return a spectrum in geometric bins: sums of noise and start, at the mean of log curvature by what they do."""
    logs = np.log(spectrum.curvatures)
    low, high = float(logs.min()), float(logs.max())
    place = np.minimum(((logs - low) / max(high - low, 1e-12) * bins).astype(np.int64), bins - 1)
    share = spectrum.counts * (spectrum.start / max(np.sum(spectrum.start), 1e-300))
    share = share + spectrum.counts * (spectrum.noise / max(np.sum(spectrum.noise), 1e-300)) + 1e-30
    amount = np.bincount(place, share, bins)
    filled = amount > 0
    centre = np.exp(np.bincount(place, share * logs, bins)[filled] / amount[filled])
    sums = [np.bincount(place, spectrum.counts * part, bins)[filled] for part in (spectrum.noise, spectrum.start)]
    noise, start = (part.astype(np.float64) for part in sums)
    return Spectrum(centre, noise, start, np.ones(int(filled.sum())))
