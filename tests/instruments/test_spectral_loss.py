"""The multi-scale spectral loss against scipy, and where its slope could be infinite."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.signal

from batchscale.instruments.synthesis.spectral_loss import FFT_SIZES, magnitudes, spectral_loss

random = np.random.default_rng(1)
SOUNDS = (0.1 * random.normal(size=(4, 4000))).astype(np.float32)
OTHERS = (0.1 * random.normal(size=(4, 4000))).astype(np.float32)
with_slope = jax.jit(jax.vmap(jax.value_and_grad(lambda found, wanted: spectral_loss(found[None], wanted[None])[0])))


def by_scipy(sound, size):
    """Frames that begin every quarter of the size, with zeros after the end."""
    count = -(-len(sound) // (size // 4))
    padded = np.pad(sound.astype(np.float64), (0, size))
    window = scipy.signal.get_window("hann", size)
    frames = [padded[start * size // 4 :][:size] for start in range(count)]
    return np.abs(np.fft.rfft(np.stack([np.pad(frame, (0, size - len(frame))) * window for frame in frames])))


def test_equal_sounds_have_no_loss():
    assert np.asarray(with_slope(SOUNDS, SOUNDS)[0]).tolist() == [0.0] * 4


def test_the_loss_is_that_of_scipy():
    wanted = []
    for sound, other in zip(SOUNDS, OTHERS, strict=True):
        total = 0.0
        for size in FFT_SIZES:
            a, b = by_scipy(sound, size), by_scipy(other, size)
            total += np.mean(np.abs(a - b))
            total += np.mean(np.abs(np.log(np.maximum(a, 1e-5)) - np.log(np.maximum(b, 1e-5))))
        wanted.append(total)
    found, _ = with_slope(SOUNDS, OTHERS)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_magnitudes_of_a_sine_stand_at_its_bin():
    sine = 0.5 * np.sin(2 * np.pi * 32 * np.arange(4096) / 512)
    found = np.asarray(magnitudes(jnp.asarray(sine, jnp.float32)[None], 512))[0, 4]
    assert found.argmax() == 32
    np.testing.assert_allclose(found[32], 0.5 * 512 / 4, rtol=1e-4)  # half a window's sum of amplitude 0.5


def test_louder_by_a_factor_costs_its_logarithm():
    found, _ = with_slope(np.stack([SOUNDS[0] * scale for scale in (0.5, 1.0, 2.0, 4.0)]), np.stack([SOUNDS[0]] * 4))
    linear = sum(np.mean(by_scipy(SOUNDS[0], size)) for size in FFT_SIZES)
    logarithms = [len(FFT_SIZES) * abs(np.log(scale)) for scale in (0.5, 1.0, 2.0, 4.0)]
    wanted = [log + linear * abs(scale - 1) for log, scale in zip(logarithms, (0.5, 1.0, 2.0, 4.0), strict=True)]
    np.testing.assert_allclose(found, wanted, rtol=2e-3)  # frames at the very end are nearly silent


def test_gradients_are_finite_also_in_silence():
    silence = np.zeros_like(SOUNDS[0])
    outputs = np.stack([silence, SOUNDS[0], silence, SOUNDS[1]])
    targets = np.stack([SOUNDS[0], silence, silence, OTHERS[1]])
    assert np.isfinite(with_slope(outputs, targets)[1]).all()
