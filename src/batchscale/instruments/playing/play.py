"""Play frames of pitch and loudness with an instrument: any length, in bounded memory.

The networks process the whole line at once; sound is then made in blocks with continuous phases, and reverb is added
last.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.signal
from flax import nnx
from numpy.typing import NDArray

from batchscale.errors import DataError
from batchscale.instruments.playing.instrument import Instrument
from batchscale.instruments.sound.features import FRAMES_PER_S, HOP
from batchscale.instruments.sound.recordings import SAMPLE_RATE, Samples
from batchscale.instruments.synthesis.network import Ddsp, DdspSizes, Sampling
from batchscale.instruments.synthesis.synthesizers import filter_frames, oscillate
from batchscale.workloads.models.declaration import find_model
from batchscale.workloads.models.nnx_model import with_parameters

_BLOCK = 1000  # frames
_CONTEXT = 2  # frames on either side of a block, so that filters ring across its borders
_PAD = 500  # lines are padded to multiples of this, so that few lengths are compiled


def play(instrument: Instrument, frames: NDArray[np.float32], seed: int = 0) -> Samples:
    """Return the samples of (frames, features): f0 in Hz, loudness in dB, and MFCCs if it was trained with them.

    Raises:
        DataError: The parameters are not those of the instrument's model, or features are missing.
    """
    if frames.ndim != 2 or frames.shape[1] != 2 + instrument.mfccs or not len(frames):
        raise DataError(f"This instrument plays frames of {2 + instrument.mfccs} numbers. Found shape {frames.shape}.")
    module = _make_module(instrument)
    padded = np.pad(frames, ((0, -len(frames) % _PAD), (0, 0)), mode="edge")
    amplitudes, magnitudes = (np.asarray(part)[0, : len(frames)] for part in _controls(module, padded[None]))
    noise = np.random.default_rng(seed).uniform(-1, 1, (len(frames), HOP)).astype(np.float32)
    dry = _in_blocks(np.asarray(frames[:, 0], np.float32), amplitudes, magnitudes, noise)
    reverb = np.array(module.response[...])
    reverb[0] = 0.0
    wet = scipy.signal.oaconvolve(dry, reverb)[: len(dry)]
    return np.asarray(dry + wet, np.float32)


def _make_module(instrument: Instrument) -> Ddsp:
    options = find_model(instrument.model, instrument.model_options).sizes
    sizes = DdspSizes(**{name: value for name, value in options.items() if name != "precision"})
    sampling = Sampling(HOP, SAMPLE_RATE, instrument.mfccs)
    shapes = nnx.eval_shape(lambda: Ddsp(sizes, sampling, dtype=None, rngs=nnx.Rngs(0)))
    try:
        return with_parameters(shapes, instrument.parameters)
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"The parameters of an instrument must be those of its model {instrument.model}. Export it again."
        ) from error


def _controls(module: Ddsp, frames: NDArray[np.float32]) -> tuple[jax.Array, jax.Array]:
    controls: tuple[jax.Array, jax.Array] = _run_controls(*nnx.split(module), frames)
    return controls


@functools.partial(jax.jit, static_argnums=0)  # the definition is the same for all instruments of a size
def _run_controls(definition: Any, state: Any, frames: jax.Array) -> tuple[jax.Array, jax.Array]:
    module: Ddsp = nnx.merge(definition, state)
    return module.controls(frames)


def _in_blocks(
    f0_hz: NDArray[np.float32],
    amplitudes: NDArray[np.float32],
    magnitudes: NDArray[np.float32],
    noise: NDArray[np.float32],
) -> NDArray[np.float64]:
    """Return harmonics and noise of a whole line, without reverb."""
    starts = _start_cycles(f0_hz)
    dry = np.empty(len(f0_hz) * HOP)
    for start in range(0, len(f0_hz), _BLOCK):
        block_frames = np.arange(start - _CONTEXT, start + _BLOCK + _CONTEXT)
        inside = np.clip(block_frames, 0, len(f0_hz) - 1)
        is_inside = (block_frames >= 0) & (block_frames < len(f0_hz))
        block_noise = np.where(is_inside[:, None], noise[inside], 0.0)
        before = _CONTEXT * HOP * float(f0_hz[0]) / SAMPLE_RATE
        first = starts[inside[0]] if block_frames[0] >= 0 else starts[0] - before
        block = _synthesize(f0_hz[inside], amplitudes[inside], magnitudes[inside], block_noise, np.float32(first % 1.0))
        count = min(_BLOCK, len(f0_hz) - start) * HOP
        dry[start * HOP : start * HOP + count] = np.asarray(block)[_CONTEXT * HOP :][:count]
    return dry


def _start_cycles(f0_hz: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the phase at which each frame begins, in cycles."""
    current = f0_hz.astype(np.float64)
    after = np.append(current[1:], current[-1:])
    each = (current * HOP + (after - current) * (HOP - 1) / 2) / SAMPLE_RATE  # the sum over a frame's samples
    return np.append(0.0, np.cumsum(each)[:-1])


@jax.jit
def _synthesize(
    f0_hz: jax.Array, amplitudes: jax.Array, magnitudes: jax.Array, noise: jax.Array, start: jax.Array
) -> jax.Array:
    tone = oscillate(f0_hz[None], amplitudes[None], HOP, FRAMES_PER_S * HOP, start)
    return (tone + filter_frames(jnp.asarray(noise, jnp.float32)[None], magnitudes[None]))[0]
