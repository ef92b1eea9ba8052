"""Each piece of the synthesiser against what is known of it without it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal

from batchscale.instruments.synthesis.synthesizers import (
    add_reverb,
    exp_sigmoid,
    filter_frames,
    normalised_below_nyquist,
    oscillate,
    white_noise,
)

RATE, HOP = 16_000, 64
FRAMES = 250


compiled = jax.jit(lambda f0_hz, amplitudes: oscillate(f0_hz, amplitudes, HOP, RATE))
filtering = jax.jit(filter_frames)
echoing = jax.jit(add_reverb)


def sounding(f0_hz, amplitudes):
    """One program for all: harmonics that are not there are silent."""
    return compiled(f0_hz, jnp.pad(amplitudes, ((0, 0), (0, 0), (0, 79 - amplitudes.shape[-1]))))


def constant(value, *more):
    return jnp.full((1, FRAMES, *more), value, jnp.float32)


def test_one_harmonic_is_a_sine_of_its_frequency_and_amplitude():
    found = np.asarray(sounding(constant(440.0), constant(0.3, 1)))[0]
    wanted = 0.3 * np.sin(2 * np.pi * 440 * np.arange(FRAMES * HOP) / RATE)
    np.testing.assert_allclose(found, wanted, atol=2e-4)  # float32 phases over a second: 1e-4 of a cycle at most


def test_a_minute_later_the_phase_is_still_right():
    seconds = 60
    frames = jnp.full((1, FRAMES * seconds), 1000.5, jnp.float32)
    found = np.asarray(compiled(frames, jnp.ones((1, FRAMES * seconds, 1))))[0, -RATE:]
    times = np.arange(RATE * (seconds - 1), RATE * seconds) / RATE
    assert np.corrcoef(found, np.sin(2 * np.pi * 1000.5 * times))[0, 1] > 0.999


def test_harmonics_sum_to_a_sawtooth():
    f0, harmonics = 100.0, 79  # all that lie below half the sample rate
    amplitudes = 2 / np.pi / np.arange(1, harmonics + 1) * (-1.0) ** np.arange(harmonics)
    found = np.asarray(sounding(constant(f0), jnp.broadcast_to(amplitudes, (1, FRAMES, harmonics))))[0]
    times = np.arange(FRAMES * HOP) / RATE
    wanted = scipy.signal.sawtooth(2 * np.pi * f0 * times + np.pi)
    smooth = np.abs((f0 * times + 0.5) % 1 - 0.5) < 0.45  # away from the jump, where Gibbs' ringing has died down
    assert np.abs(found - wanted)[smooth].max() < 0.05
    assert np.sqrt(np.mean(np.square(found - wanted)[smooth])) < 0.01


def test_a_glide_follows_its_frequencies():
    f0 = np.linspace(200, 400, FRAMES)
    found = np.asarray(sounding(jnp.asarray(f0, jnp.float32)[None], constant(1.0, 1)))[0]
    each = np.interp(np.arange(FRAMES * HOP), np.arange(FRAMES) * HOP, f0) / RATE
    np.testing.assert_allclose(found, np.sin(2 * np.pi * (np.cumsum(each) - each)), atol=1e-3)


def test_amplitudes_are_met_at_the_frames():
    amplitudes = jnp.zeros((1, FRAMES, 1)).at[:, 100].set(1.0)
    found = np.abs(np.asarray(sounding(constant(4000.0), amplitudes))[0])
    assert found[99 * HOP + 1 : 101 * HOP].max() > 0.99
    assert found[: 99 * HOP].max() == 0 and found[101 * HOP :].max() == 0


def test_what_lies_above_half_the_sample_rate_is_silent():
    amplitudes = jnp.ones((1, FRAMES, 10))
    found = np.asarray(sounding(constant(1800.0), amplitudes))[0]
    spectrum = np.abs(np.fft.rfft(found * np.hanning(len(found))))
    peaks = np.flatnonzero(spectrum > 0.5 * spectrum.max()) * RATE / len(found)
    assert {round(peak / 1800) for peak in peaks} == {1, 2, 3, 4}  # the fifth would be heard at 7000 Hz
    assert np.abs(peaks / 1800 - np.round(peaks / 1800)).max() < 0.01


def test_shares_are_normalised_below_half_the_sample_rate():
    shares = np.asarray(normalised_below_nyquist(jnp.ones((1, 2, 4)), jnp.array([[100.0, 3000.0]]), RATE))
    np.testing.assert_allclose(shares[0, 0], [0.25] * 4)
    np.testing.assert_allclose(shares[0, 1], [0.5, 0.5, 0, 0])
    silent = normalised_below_nyquist(jnp.ones((1, 1, 4)), jnp.array([[9000.0]]), RATE)
    assert np.asarray(silent).tolist() == [[[0.0] * 4]]


def test_exponential_sigmoid_is_positive_bounded_and_as_published():
    x = np.linspace(-50, 50, 101)
    found = np.asarray(exp_sigmoid(jnp.asarray(x, jnp.float32)))
    np.testing.assert_allclose(found, 2 / (1 + np.exp(-x)) ** np.log(10) + 1e-7, rtol=1e-4)
    assert found.min() > 0 and found.max() <= 2 + 1e-6


def noise_through(magnitudes, seconds=4):
    frames = FRAMES * seconds
    noise = white_noise(jax.random.key(0), (1, frames, HOP))
    return np.asarray(noise).ravel(), np.asarray(filtering(noise, jnp.broadcast_to(magnitudes, (1, frames, 65))))[0]


def test_a_flat_response_leaves_noise_as_it_is():
    noise, found = noise_through(jnp.ones(65))
    np.testing.assert_allclose(found, noise, atol=1e-5)


def test_white_noise_is_white_uniform_and_without_mean():
    noise, _ = noise_through(jnp.ones(65))
    assert abs(noise.mean()) < 0.01 and abs(noise.std() - 3**-0.5) < 0.005 and np.abs(noise).max() <= 1
    _, power = scipy.signal.welch(noise, RATE, nperseg=256)
    assert power[1:-1].max() / power[1:-1].min() < 1.6


def test_a_band_passes_what_is_in_it_and_nothing_else():
    bands = np.zeros(65)
    bands[16:33] = 1  # 2000 to 4000 Hz
    noise, found = noise_through(jnp.asarray(bands, jnp.float32))
    frequencies, power = scipy.signal.welch(found, RATE, nperseg=512, detrend=False)
    _, before = scipy.signal.welch(noise, RATE, nperseg=512, detrend=False)
    gain = np.sqrt(power / before)
    inside = (frequencies > 2250) & (frequencies < 3750)
    outside = (frequencies < 1700) | (frequencies > 4300)
    assert np.abs(gain[inside] - 1).max() < 0.1
    assert gain[outside].max() < 0.02


def test_noise_of_an_example_does_not_depend_on_its_microbatch():
    from batchscale.workloads.random_bits import examples_from

    whole = white_noise(jax.random.key(3), (4, 5, 8))
    with examples_from(2):
        part = white_noise(jax.random.key(3), (2, 5, 8))
    np.testing.assert_array_equal(whole[2:], part)


@pytest.mark.parametrize("length", [1, 300, 2000])
def test_reverb_is_the_dry_sound_and_a_convolution(length):
    random = np.random.default_rng(0)
    samples, response = random.normal(size=(2, 1000)), random.normal(size=length)
    found = echoing(jnp.asarray(samples, jnp.float32), jnp.asarray(response, jnp.float32))
    echo = np.concatenate([[0.0], response[1:]])
    wanted = samples + np.stack([scipy.signal.fftconvolve(row, echo)[:1000] for row in samples])
    np.testing.assert_allclose(found, wanted, atol=2e-3)  # sums of 1000 products of size 1 in float32
