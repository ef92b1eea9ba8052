"""Instruments as folders, what they play, and recordings played by them."""

import json

import jax
import numpy as np
import pytest
import soundfile
from sounds import RATE, melody, silence

from batchscale.errors import DataError, SpecError
from batchscale.instruments.playing.instrument import Instrument, flatten, read_instrument, unflatten, write_instrument
from batchscale.instruments.playing.play import play
from batchscale.instruments.playing.transfer import TransferOptions, conform, range_warning, transfer, write_wav
from batchscale.instruments.sound.features import HOP, Features, extract_features
from batchscale.instruments.sound.prepared import SoundStatistics
from batchscale.workloads.models.declaration import Shape, find_model

OPTIONS = {"tiny": True, "reverb": 300}
STATISTICS = SoundStatistics(tuple(np.linspace(-50, -10, 101)), tuple(np.linspace(50, 80, 101)), 0.9)


@pytest.fixture(scope="module")
def instrument():
    """One that nobody trained, with a room; its noise is turned off, so that what it plays is known."""
    model = find_model("ddsp_tiny", OPTIONS).for_data(Shape((40, 2), 40 * HOP))
    params = jax.tree.map(np.array, jax.jit(model.init)(jax.random.key(0))[0])
    params["to_controls"]["bias"][-5:] = -60.0
    params["response"] = 0.02 * np.random.default_rng(0).normal(size=300).astype(np.float32)
    return Instrument("ddsp_tiny", OPTIONS, 0, STATISTICS, params, {"steps": 0})


def test_what_is_written_is_what_is_read(instrument, tmp_path):
    write_instrument(tmp_path / "violin", instrument)
    found = read_instrument(tmp_path / "violin")
    assert (found.model, dict(found.model_options), found.mfccs) == ("ddsp_tiny", OPTIONS, 0)
    assert found.statistics == STATISTICS and found.trained == {"steps": 0}
    jax.tree.map(np.testing.assert_array_equal, found.parameters, instrument.parameters)
    assert {path.name for path in (tmp_path / "violin").iterdir()} == {"instrument.json", "parameters.npz"}
    with pytest.raises(DataError, match="new folder"):
        write_instrument(tmp_path / "violin", instrument)


def test_a_tree_of_arrays_is_flattened_and_back():
    tree = {"a": {"b": np.ones(2), "0": {"c": np.zeros(1)}}, "d": np.ones(())}
    assert set(flatten(tree)) == {"a/b", "a/0/c", "d"}
    jax.tree.map(np.testing.assert_array_equal, unflatten(flatten(tree)), tree)


def test_damaged_and_foreign_folders_are_refused(instrument, tmp_path):
    folder = tmp_path / "x"
    with pytest.raises(DataError, match="audio export"):
        read_instrument(folder)
    write_instrument(folder, instrument)
    said = json.loads((folder / "instrument.json").read_text())
    array = (folder / "parameters.npz").read_bytes()
    (folder / "parameters.npz").write_bytes(array[:-1])
    with pytest.raises(DataError, match="checksum"):
        read_instrument(folder)
    (folder / "parameters.npz").write_bytes(array)
    for wrong in ({**said, "version": 9}, {**said, "statistics": None}, {**said, "model_options": 3}, [], {}):
        (folder / "instrument.json").write_text(json.dumps(wrong))
        with pytest.raises(DataError):
            read_instrument(folder)


def test_pickled_parameters_are_never_unpickled(instrument, tmp_path):
    import hashlib

    write_instrument(tmp_path / "x", instrument)
    np.savez(tmp_path / "x" / "parameters.npz", evil=np.array([print], dtype=object))
    said = json.loads((tmp_path / "x" / "instrument.json").read_text())
    said["parameters_sha256"] = hashlib.sha256((tmp_path / "x" / "parameters.npz").read_bytes()).hexdigest()
    (tmp_path / "x" / "instrument.json").write_text(json.dumps(said))
    with pytest.raises(DataError, match="allow_pickle"):
        read_instrument(tmp_path / "x")


def test_parameters_of_another_model_are_refused(instrument):
    other = Instrument("ddsp_tiny", {"tiny": True, "reverb": 301}, 0, STATISTICS, instrument.parameters)
    with pytest.raises(DataError, match="those of its model"):
        play(other, np.full((10, 2), 100.0, np.float32))
    with pytest.raises(DataError, match="frames of 2 numbers"):
        play(instrument, np.zeros((10, 3), np.float32))


def test_playing_in_blocks_is_the_model_at_once(instrument):
    frames = 1250  # two blocks, the last one not full
    random = np.random.default_rng(1)
    f0_hz = 300 + 100 * np.sin(np.arange(frames) / 50) + random.normal(size=frames)
    line = np.stack([f0_hz, random.uniform(-60, 0, frames)], axis=-1).astype(np.float32)
    model = find_model("ddsp_tiny", OPTIONS).for_data(Shape((frames, 2), frames * HOP))
    run = jax.jit(lambda params, line: model.apply(params, {}, line, train=False, key=jax.random.key(0))[0])
    wanted = np.asarray(run(instrument.parameters, line[None]))[0]
    np.testing.assert_allclose(play(instrument, line), wanted, atol=2e-3)  # float32 phases after five seconds


def test_a_transfer_follows_the_pitch_moved_by_octaves(instrument, tmp_path):
    notes = [262.0, 330.0, 392.0, 330.0]
    soundfile.write(tmp_path / "in.wav", np.concatenate([silence(0.5), melody(notes)]), RATE)
    given = extract_features([np.concatenate([silence(0.5), melody(notes)])])
    for octaves in (0, 1):
        played = transfer(instrument, tmp_path / "in.wav", TransferOptions(octaves=octaves))
        assert len(played) == round(2.5 * RATE)
        heard = extract_features([played])
        voiced = (given.confidence >= 0.5) & (heard.confidence >= 0.5)
        assert voiced.mean() > 0.5
        cents = 1200 * np.abs(np.log2(heard.f0_hz / given.f0_hz / 2**octaves))[voiced]
        assert np.quantile(cents, 0.9) < 20  # but for the moments between two notes
        write_wav(tmp_path / f"{octaves}.wav", played)
        read, rate = soundfile.read(tmp_path / f"{octaves}.wav")
        assert rate == RATE and np.abs(read - played / max(1, np.abs(played).max())).max() < 1e-3


def features(loudness, confidence, f0_hz=220.0):
    loudness, confidence = np.asarray(loudness, np.float32), np.asarray(confidence, np.float32)
    return Features(np.full(len(loudness), f0_hz, np.float32), confidence, loudness)


def test_loudness_is_matched_quantile_by_quantile_and_silence_stays(instrument):
    given = features([*np.linspace(-40, -30, 101), -70.0, -20.0], [*[1.0] * 101, 1.0, 0.1])
    line = conform(given, instrument, TransferOptions())
    np.testing.assert_allclose(line[:101, 1], np.linspace(-50, -10, 101), atol=0.5)
    assert line[101:, 1].tolist() == [-80, -80]  # too quiet, and no pitch
    own = conform(given, instrument, TransferOptions(match_loudness=False))
    np.testing.assert_allclose(own[:101, 1], given.loudness_db[:101])
    assert conform(features([-30.0] * 5, [1.0] * 5), instrument, TransferOptions()).shape == (5, 2)


def test_what_cannot_be_played_is_refused(instrument, tmp_path):
    with pytest.raises(DataError, match="must have a pitch"):
        conform(features([-70.0, -20.0], [1.0, 0.1]), instrument, TransferOptions())
    with pytest.raises(DataError, match="cannot be read"):
        transfer(instrument, tmp_path / "none.wav")
    for wrong in ({"octaves": 9}, {"silence_db": 1.0}, {"confidence": 2.0}):
        with pytest.raises(SpecError):
            TransferOptions(**wrong)


def test_pitch_outside_of_the_trained_range_is_named_with_the_octaves_that_help(instrument):
    """The instrument was trained on the MIDI notes 50 to 80, 147 to 831 Hz."""

    def line(*notes):
        return np.array([[440 * 2 ** ((note - 69) / 12), -20.0] for note in notes], np.float32)

    assert range_warning(line(50, 60, 80, 80.9), instrument) is None
    warning = range_warning(line(60, 90, 92, 91), instrument)
    assert warning.startswith("75% of the pitch lies outside of 147 to 831 Hz") and "With -1 octaves" in warning
    silent = line(60, 90)
    silent[1, 1] = -80
    assert range_warning(silent, instrument) is None
