"""The DDSP autoencoder (Engel et al., 2020): frames of pitch and loudness in, sound out.

An example's ``inputs`` are frames of f0 in Hz, loudness in dB and, optionally, MFCCs, from which an encoder makes z.
The outputs are samples. Left out of the original: the pitch encoder that learns without a tracker (f0 is data here, as
in the original's supervised models), the perceptual loss, and dropout, which it has not.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from batchscale.workloads.audio.filtered_noise import filter_frames, white_noise
from batchscale.workloads.audio.oscillators import exp_sigmoid, normalised_below_nyquist, oscillate
from batchscale.workloads.audio.reverb import add_reverb
from batchscale.workloads.models.layers.conv import DType
from batchscale.workloads.models.layers.initializers import uniform
from batchscale.workloads.models.layers.linear import Linear
from batchscale.workloads.models.layers.recurrent import Gru, NormalisedLayers

LOUDNESS_RANGE_DB = 80.0
_NOISE_BIAS = -5.0  # noise starts quiet, so that harmonics are found first
_FIRST_RESPONSE = 1e-6
_FIXED = np.zeros(2, np.uint32)  # the key of evaluation's noise


@dataclass(frozen=True)
class DdspSizes:
    """How large the networks are, and how fine the synthesiser: ``reverb`` is in samples."""

    width: int
    layers: int
    hidden: int
    harmonics: int
    noise_bands: int
    reverb: int
    z: int


@dataclass(frozen=True)
class Sampling:
    """Samples per frame and per second, and the MFCCs of a frame (0: none, and no z)."""

    hop: int
    sample_rate: int
    mfccs: int = 0


class Ddsp(nnx.Module):
    """The decoder, the synthesisers that it drives, and the room."""

    def __init__(self, sizes: DdspSizes, sampling: Sampling, *, dtype: DType, rngs: nnx.Rngs) -> None:
        def stack(inputs: int) -> NormalisedLayers:
            return NormalisedLayers(inputs, sizes.width, sizes.layers, dtype=dtype, rngs=rngs)

        self.sizes, self.sampling = sizes, sampling
        self.from_pitch, self.from_loudness = stack(1), stack(1)
        num_stacks = 2
        if sampling.mfccs:
            num_stacks = 3
            self.encoder = Gru(sampling.mfccs, sizes.hidden, dtype=dtype, rngs=rngs)
            self.to_z = Linear(sizes.hidden, sizes.z, dtype=dtype, rngs=rngs)
            self.from_z = stack(sizes.z)
        self.gru = Gru(num_stacks * sizes.width, sizes.hidden, dtype=dtype, rngs=rngs)
        self.after = stack(sizes.hidden + num_stacks * sizes.width)
        self.to_controls = Linear(sizes.width, 1 + sizes.harmonics + sizes.noise_bands, dtype=dtype, rngs=rngs)
        self.response = nnx.Param(uniform(_FIRST_RESPONSE)(rngs.params(), (sizes.reverb,), jnp.float32))

    def __call__(self, inputs: jax.Array, *, train: bool, key: jax.Array) -> jax.Array:
        """The samples of (batch, frames, features)."""
        f0_hz = inputs[..., 0].astype(jnp.float32)
        amplitudes, magnitudes = self.controls(inputs)
        hop, rate = self.sampling.hop, self.sampling.sample_rate
        tone = oscillate(f0_hz, amplitudes, hop, rate)
        if train:
            white = white_noise(key, (*f0_hz.shape, hop))
        else:  # noise is part of the sound here too, but the same for all examples, in whatever batches they come
            white = jnp.broadcast_to(white_noise(jnp.asarray(_FIXED), (1, f0_hz.shape[1], hop)), (*f0_hz.shape, hop))
        noise = filter_frames(white, magnitudes)
        return add_reverb(tone + noise, self.response[...])

    def controls(self, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """What drives the synthesisers: the amplitude of every harmonic, and the magnitude of every noise band."""
        f0_hz = inputs[..., 0].astype(jnp.float32)
        parts = [self.from_pitch(_as_unit_pitch(f0_hz)), self.from_loudness(_as_unit_loudness(inputs[..., 1]))]
        if self.sampling.mfccs:
            parts.append(self.from_z(self.to_z(self.encoder(inputs[..., 2:]))))
        joined = jnp.concatenate(parts, axis=-1)
        decoded = self.after(jnp.concatenate([self.gru(joined), joined], axis=-1))
        found = self.to_controls(decoded).astype(jnp.float32)
        total, shares, bands = jnp.split(found, [1, 1 + self.sizes.harmonics], axis=-1)
        spread = normalised_below_nyquist(exp_sigmoid(shares), f0_hz, self.sampling.sample_rate)
        return exp_sigmoid(total) * spread, exp_sigmoid(bands + _NOISE_BIAS)


def _as_unit_pitch(f0_hz: jax.Array) -> jax.Array:
    """The note number over 127: about 0 to 1, in equal steps for equal intervals; 0 Hz is 0."""
    notes = 69.0 + 12.0 * jnp.log2(jnp.maximum(f0_hz, 8.0) / 440.0)
    return (notes / 127.0)[..., None]


def _as_unit_loudness(loudness_db: jax.Array) -> jax.Array:
    """1 for 0 dB, 0 for silence."""
    return (loudness_db.astype(jnp.float32) / LOUDNESS_RANGE_DB + 1.0)[..., None]
