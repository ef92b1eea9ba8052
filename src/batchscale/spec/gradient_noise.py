"""The kinds of gradient noise scale, and the columns in which the records hold what each is computed from.

Owns names only. ``training/gradient_noise.py`` measures the columns, a user's script may report them too, and
``prediction/noise_scale.py`` turns them into numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

EXAMPLES_COLUMN = "train/gradient_noise_examples"
"""The number of examples that a measurement of the noise took."""


WITHOUT_MOMENTS = frozenset({"sgd", "momentum", "nesterov_momentum", "lars", "lion", "muon"})
"""Optimizers whose state has no second moments of all gradients."""


class NoiseKind(StrEnum):
    """The norm in which gradients and their noise are measured: the one in which the optimizer takes its steps.

    ``euclidean`` is that of SGD and momentum, ``preconditioned`` that of Adam's own scaling, ``sign`` that of steps of
    equal size in every coordinate, ``spectral`` that of orthogonal steps of matrices.
    """

    EUCLIDEAN = "euclidean"
    PRECONDITIONED = "preconditioned"
    SIGN = "sign"
    SPECTRAL = "spectral"


@dataclass(frozen=True)
class NoiseColumns:
    """The columns of a kind: signal and noise, of which the noise scale is the ratio to a power.

    A norm that has no unbiased estimate has two columns, ``signal`` that is too low and ``signal_high`` that is too
    high on average; otherwise ``signal_high`` is None.
    """

    signal: str
    noise: str
    power: int = 1
    signal_high: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        high = () if self.signal_high is None else (self.signal_high,)
        return (self.signal, *high, self.noise)


NOISE_COLUMNS: Mapping[NoiseKind, NoiseColumns] = {
    NoiseKind.EUCLIDEAN: NoiseColumns("train/gradient_norm_squared", "train/gradient_noise_trace"),
    NoiseKind.PRECONDITIONED: NoiseColumns("train/preconditioned_norm_squared", "train/preconditioned_noise_trace"),
    NoiseKind.SIGN: NoiseColumns("train/sign_norm_low", "train/sign_noise", 2, "train/sign_norm_high"),
    NoiseKind.SPECTRAL: NoiseColumns("train/spectral_norm_low", "train/spectral_noise", 2, "train/spectral_norm_high"),
}

FEWEST_STEPS = 64
"""The fewest steps between two measurements of the noise."""

NO_MOMENTS = (
    "evaluation.gradient_noise: 'preconditioned' needs an optimizer with second moments of all gradients, as adam or "
    "rmsprop. Found {optimizer}; remove the kind, or measure 'euclidean'."
)

ALL_NOISE_COLUMNS = frozenset({EXAMPLES_COLUMN, *(name for kind in NOISE_COLUMNS.values() for name in kind.names)})
