"""Loudness against the standard's table, pitch against tones that are known."""

import numpy as np
import pytest
from sounds import RATE, melody, silence, tone

from batchscale.instruments.sound.features import (
    FRAMES_PER_S,
    HOP,
    SILENCE_DB,
    FeatureStream,
    a_weighting_db,
    extract_features,
)


def cents(found, wanted):
    return 1200 * np.abs(np.log2(found / wanted))


def test_weights_are_those_of_the_standard():
    # IEC 61672-1, table 3, in tenths of a decibel
    table = {31.62: -39.4, 63.10: -26.2, 125.89: -16.1, 251.19: -8.6, 501.19: -3.2, 1000: 0.0, 1995.3: 1.2, 3981.1: 1.0}
    found = a_weighting_db(np.array(list(table)))
    np.testing.assert_allclose(found, list(table.values()), atol=0.06)


@pytest.mark.parametrize(("f0_hz", "level", "wanted"), [(1000, 1.0, 0.0), (1000, 0.1, -20.0), (100, 1.0, -19.1)])
def test_a_sine_has_its_weighted_level(f0_hz, level, wanted):
    sine = level * np.sin(2 * np.pi * f0_hz * np.arange(RATE) / RATE)
    found = extract_features([sine.astype(np.float32)])
    middle = found.loudness_db[20:-20]
    assert np.abs(middle - wanted).max() < 0.2  # the tenth of a decibel of the table, and bins of 16 Hz


@pytest.mark.parametrize(("f0_hz", "error_db"), [(31.5, 2.4), (50, 0.8), (63, 0.4), (80, 0.2)])
def test_low_sines_are_too_loud_by_what_the_guide_says(f0_hz, error_db):
    sine = np.sin(2 * np.pi * f0_hz * np.arange(RATE) / RATE)
    level = np.median(extract_features([sine.astype(np.float32)]).loudness_db[20:-20])
    assert level - a_weighting_db(np.array([f0_hz]))[0] == pytest.approx(error_db, abs=0.1)


def test_there_is_a_frame_for_every_hop_and_silence_is_silent():
    for count in (1, HOP, HOP + 1, RATE):
        assert len(extract_features([np.zeros(count, np.float32)])) == -(-count // HOP)
    found = extract_features([silence(0.5)])
    assert found.loudness_db.max() == SILENCE_DB and found.confidence.max() == 0
    assert len(extract_features([])) == 0


def test_blocks_of_any_size_give_the_same_features():
    sound = melody([220, 440, 330])
    whole = extract_features([sound])
    stream = FeatureStream()
    for start in range(0, len(sound), 1777):
        stream.push(sound[start : start + 1777])
    parts = stream.finish()
    np.testing.assert_allclose(parts.loudness_db, whole.loudness_db, atol=1e-3)
    voiced = whole.confidence > 0.5
    assert cents(parts.f0_hz[voiced], whole.f0_hz[voiced]).max() < 0.1


@pytest.mark.parametrize("f0_hz", [65.4, 110.0, 261.63, 440.0, 880.0, 1760.0])
def test_the_tracker_is_within_twenty_cents_on_tones(f0_hz):
    found = extract_features([tone(f0_hz, 1.0)])
    inside = slice(FRAMES_PER_S // 5, -FRAMES_PER_S // 5)
    assert found.confidence[inside].min() >= 0.5
    assert cents(found.f0_hz[inside], f0_hz).max() < 20


def test_a_glide_is_followed():
    f0 = np.linspace(220, 440, 2 * RATE)
    sound = (0.3 * np.sin(2 * np.pi * np.cumsum(f0) / RATE)).astype(np.float32)
    found = extract_features([sound])
    wanted = f0[np.arange(len(found)) * HOP]
    assert np.median(cents(found.f0_hz, wanted)[50:-50]) < 10
