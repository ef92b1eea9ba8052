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

from batchscale.instruments.synthesis.synthesizers import (
    add_reverb,
    exp_sigmoid,
    filter_frames,
    normalised_below_nyquist,
    oscillate,
    white_noise,
)
from batchscale.workloads.models.layers.conv import DType
from batchscale.workloads.models.layers.initializers import before_output, between, uniform
from batchscale.workloads.models.layers.linear import Linear

LOUDNESS_RANGE_DB = 80.0
_NOISE_BIAS = -5.0  # noise starts quiet, so that harmonics are learned first
_FIRST_RESPONSE = 1e-6
_EVALUATION_KEY = np.zeros(2, np.uint32)  # of the noise
_EPSILON = 1e-3  # as in the library that DDSP was written with
_SLOPE = 0.2


@dataclass(frozen=True)
class DdspSizes:
    """The sizes of the networks and of the synthesizers; ``reverb`` is in samples."""

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


class Gru(nnx.Module):
    """Cho et al. (2014), the reset gate applied after the product: biases on both sides."""

    def __init__(self, num_inputs: int, hidden: int, *, dtype: DType, rngs: nnx.Rngs) -> None:
        self.from_inputs = Linear(num_inputs, 3 * hidden, dtype=dtype, kernel_init=between, rngs=rngs)
        self.from_outputs = Linear(hidden, 3 * hidden, dtype=dtype, kernel_init=before_output(), rngs=rngs)
        self.hidden = hidden

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Return the state after every position of (batch, positions, features)."""
        projected = self.from_inputs(inputs)  # all positions at once: only the recurrence has to be a loop
        start = jnp.zeros((inputs.shape[0], self.hidden), projected.dtype)

        def step(state: jax.Array, position: jax.Array) -> tuple[jax.Array, jax.Array]:
            update, reset, candidate = jnp.split(position, 3, axis=-1)
            old_update, old_reset, old_candidate = jnp.split(self.from_outputs(state), 3, axis=-1)
            keep = nnx.sigmoid(update + old_update)
            fresh = jnp.tanh(candidate + nnx.sigmoid(reset + old_reset) * old_candidate)
            state = keep * state + (1 - keep) * fresh
            return state, state

        _, states = jax.lax.scan(step, start, jnp.moveaxis(projected, 1, 0))
        return jnp.moveaxis(states, 0, 1)


class NormalisedLayers(nnx.Module):
    """Linear layers, each followed by layer normalization and a leaky ReLU."""

    def __init__(self, num_inputs: int, width: int, layers: int, *, dtype: DType, rngs: nnx.Rngs) -> None:
        sizes = [num_inputs, *[width] * (layers - 1)]
        self.linears = nnx.List([Linear(size, width, dtype=dtype, kernel_init=between, rngs=rngs) for size in sizes])
        self.scales = nnx.Param(jnp.ones((layers, width), jnp.float32))
        self.offsets = nnx.Param(jnp.zeros((layers, width), jnp.float32))

    def __call__(self, values: jax.Array) -> jax.Array:
        """Return the last layer's values, position by position."""
        for number, linear in enumerate(self.linears):
            wide = linear(values).astype(jnp.float32)
            centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
            spread = jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + _EPSILON)
            normal = centred * spread * self.scales[number] + self.offsets[number]
            values = nnx.leaky_relu(normal, _SLOPE).astype(linear.dtype or jnp.float32)
        return values


class Ddsp(nnx.Module):
    """The decoder, the synthesizers that it controls, and the reverb."""

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
        """Return the samples of (batch, frames, features)."""
        f0_hz = inputs[..., 0].astype(jnp.float32)
        amplitudes, magnitudes = self.controls(inputs)
        hop, rate = self.sampling.hop, self.sampling.sample_rate
        tone = oscillate(f0_hz, amplitudes, hop, rate)
        if train:
            white = white_noise(key, (*f0_hz.shape, hop))
        else:  # noise is part of the sound here too, but the same for all examples, in whatever batches they come
            white = jnp.broadcast_to(
                white_noise(jnp.asarray(_EVALUATION_KEY), (1, f0_hz.shape[1], hop)), (*f0_hz.shape, hop)
            )
        noise = filter_frames(white, magnitudes)
        return add_reverb(tone + noise, self.response[...])

    def controls(self, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the controls of the synthesizers: amplitudes of harmonics, and magnitudes of noise bands."""
        f0_hz = inputs[..., 0].astype(jnp.float32)
        parts = [self.from_pitch(_as_unit_pitch(f0_hz)), self.from_loudness(_as_unit_loudness(inputs[..., 1]))]
        if self.sampling.mfccs:
            parts.append(self.from_z(self.to_z(self.encoder(inputs[..., 2:]))))
        joined = jnp.concatenate(parts, axis=-1)
        decoded = self.after(jnp.concatenate([self.gru(joined), joined], axis=-1))
        controls = self.to_controls(decoded).astype(jnp.float32)
        total, shares, bands = jnp.split(controls, [1, 1 + self.sizes.harmonics], axis=-1)
        spread = normalised_below_nyquist(exp_sigmoid(shares), f0_hz, self.sampling.sample_rate)
        return exp_sigmoid(total) * spread, exp_sigmoid(bands + _NOISE_BIAS)


def _as_unit_pitch(f0_hz: jax.Array) -> jax.Array:
    """Return the note number over 127: about 0 to 1, in equal steps for equal intervals; 0 Hz is 0."""
    notes = 69.0 + 12.0 * jnp.log2(jnp.maximum(f0_hz, 8.0) / 440.0)
    return (notes / 127.0)[..., None]


def _as_unit_loudness(loudness_db: jax.Array) -> jax.Array:
    """Return 1 for 0 dB, 0 for silence."""
    return (loudness_db.astype(jnp.float32) / LOUDNESS_RANGE_DB + 1.0)[..., None]
