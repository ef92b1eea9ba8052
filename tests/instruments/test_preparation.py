"""From recordings to prepared folders: what is right, what is resumed, and what is hostile."""

import io
import json
import shutil
import subprocess
import sys
import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
from sounds import RATE, melody, silence, tone

from batchscale.errors import DataError, SpecError
from batchscale.instruments.sound import preparation
from batchscale.instruments.sound.features import FRAMES_PER_S, HOP
from batchscale.instruments.sound.preparation import prepare_recordings
from batchscale.instruments.sound.prepared import cut_windows, read_prepared
from batchscale.instruments.sound.recordings import find_recordings, stream_mono
from batchscale.instruments.sound.segments import Cutting, cut_segments


def put(folder, name, samples, rate=RATE, **options):
    folder.mkdir(parents=True, exist_ok=True)
    soundfile.write(folder / name, samples, rate, **options)
    return folder / name


@pytest.fixture(scope="module")
def line():
    return melody([220, 247, 262, 294, 330, 349, 392, 440] * 3)  # 12 s


@pytest.fixture(scope="module")
def made(tmp_path_factory, line):
    folder = tmp_path_factory.mktemp("recordings")
    put(folder / "in", "a.wav", np.concatenate([line, silence(3), line[: 4 * RATE]]))
    return folder, prepare_recordings(folder / "in", folder / "out")


def test_the_line_is_split_by_time_without_overlap_and_without_long_silence(made):
    _, prepared = made
    assert {one.split for one in prepared.segments} == {"train", "val"}
    heard = np.concatenate([np.arange(one.start, one.end) for one in prepared.segments])
    assert len(set(heard.tolist())) == len(heard)
    # 16 s of line, half a second on either side of the rest
    assert len(heard) / FRAMES_PER_S == pytest.approx(17, abs=0.2)
    assert prepared.seconds("val") == pytest.approx(1.7, abs=0.05)
    last_trained = max(one.end for one in prepared.segments if one.split == "train")
    assert all(one.start >= last_trained for one in prepared.segments if one.split == "val")


def test_windows_lie_in_their_split_and_hold_what_was_recorded(made):
    folder, prepared = made
    windows = {split: cut_windows(prepared, split, 1.0, 0.5) for split in ("train", "val")}
    frames = {split: set() for split in windows}
    for split, found in windows.items():
        for start in found.starts:
            frames[split] |= set(range(start, start + found.length))
    assert not frames["train"] & frames["val"]
    read = windows["train"].read(np.array([3]))
    source, _ = soundfile.read(folder / "in" / "a.wav", dtype="int16")
    start = int(windows["train"].starts[3]) * HOP
    assert np.abs(read["samples"][0].astype(int) - source[start : start + RATE]).max() <= 1
    with pytest.raises(DataError, match="larger --val-share"):
        cut_windows(prepared, "val", 4.0, 1.0)


def test_a_second_preparation_hears_nothing_again_and_says_the_same(made, monkeypatch):
    folder, prepared = made
    monkeypatch.setattr(preparation, "FeatureStream", None)  # would fail if anything was heard
    assert prepare_recordings(folder / "in", folder / "out") == prepared
    assert read_prepared(folder / "out", verify=True) == prepared


def test_an_interrupted_preparation_goes_on_behind_the_last_whole_recording(tmp_path, line, monkeypatch):
    for number in range(3):
        put(tmp_path / "in", f"{number}.wav", line[: (number + 2) * RATE])
    heard, real = [], preparation._write_arrays

    def write(blocks, stage, tell):
        if len(heard) == 2:
            raise KeyboardInterrupt
        heard.append(stage)
        real(blocks, stage, tell)

    monkeypatch.setattr(preparation, "_write_arrays", write)
    with pytest.raises(KeyboardInterrupt):
        prepare_recordings(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out" / "prepared.json").exists()
    with pytest.raises(DataError, match="batchscale data audio"):
        read_prepared(tmp_path / "out")
    heard.clear()
    shown = []
    assert len(prepare_recordings(tmp_path / "in", tmp_path / "out", show=shown.append).recordings) == 3
    assert len(heard) == 1
    assert not list((tmp_path / "out" / "arrays").glob(".new-*"))
    assert shown[-1].done_s == pytest.approx(shown[-1].total_s) == pytest.approx(9)


def test_damage_is_found(made, tmp_path):
    folder, prepared = made
    copy = tmp_path / "copy"
    shutil.copytree(folder / "out", copy)
    array = copy / "arrays" / prepared.recordings[0].key / "f0_hz.bin"
    content = bytearray(array.read_bytes())
    content[7] ^= 1
    array.write_bytes(content)
    read_prepared(copy)
    with pytest.raises(DataError, match="checksum"):
        read_prepared(copy, verify=True)
    array.write_bytes(content[:-4])
    with pytest.raises(DataError, match="as it was prepared"):
        read_prepared(copy)
    for text in ("{", "[]", '{"version": 1}', '{"version": 2}'):
        (copy / "prepared.json").write_text(text)
        with pytest.raises(DataError):
            read_prepared(copy)
    said = json.loads((folder / "out" / "prepared.json").read_text())
    said["recordings"][0]["key"] = "../../etc"
    (copy / "prepared.json").write_text(json.dumps(said))
    with pytest.raises(DataError, match="damaged"):
        read_prepared(copy)


def test_statistics_are_those_of_the_training_part(made):
    notes = made[1].statistics.note
    assert len(notes) == 101 and notes == tuple(sorted(notes))
    assert notes[50] == pytest.approx(63, abs=2)  # between 220 and 440 Hz
    assert made[1].statistics.voiced_share > 0.8


# ---- hostile recordings


def test_bad_recordings_are_named_and_passed_over(tmp_path, line):
    folder = tmp_path / "in"
    put(folder, "good.wav", line[: 6 * RATE])
    put(folder, "none.wav", np.zeros(0, np.float32))
    bad = line[:RATE].copy()
    bad[500] = np.nan
    put(folder, "nan.wav", bad, subtype="FLOAT")
    whole = (folder / "good.wav").read_bytes()
    (folder / "header.wav").write_bytes(whole[:20])
    (folder / "empty.wav").write_bytes(b"")
    (folder / "text.mp3").write_text("not sound")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("bomb", bytes(20_000_000))
    (folder / "bomb.wav").write_bytes(packed.getvalue())
    (folder / "notes.txt").write_text("practise more")
    (folder / "song.m4a").write_bytes(b"....ftypM4A ")
    (folder / "same.wav").write_bytes(whole)
    prepared = prepare_recordings(folder, tmp_path / "out")
    assert [one.name for one in prepared.recordings] == ["good.wav"]
    why = prepared.skipped
    assert set(why) == {
        *("none.wav", "nan.wav", "header.wav", "empty.wav", "text.mp3", "bomb.wav"),
        *("notes.txt", "song.m4a", "same.wav"),
    }
    assert "no samples" in why["none.wav"] and "finite" in why["nan.wav"] and "cannot be read" in why["bomb.wav"]
    assert "same sound" in why["same.wav"] and "ending" in why["song.m4a"]


def test_a_truncated_recording_is_used_as_far_as_it_goes(tmp_path, line):
    path = put(tmp_path / "in", "cut.wav", line[: 6 * RATE])
    path.write_bytes(path.read_bytes()[: 3 * RATE * 2])  # its header still says six seconds
    prepared = prepare_recordings(tmp_path / "in", tmp_path / "out")
    assert prepared.recordings[0].num_frames == pytest.approx(3 * FRAMES_PER_S, abs=1)


def test_a_lying_header_allocates_nothing(tmp_path):
    held = io.BytesIO()
    with wave.open(held, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((tone(440, 1.0) * 32767).astype("<i2").tobytes())
    content = bytearray(held.getvalue())
    content[4:8] = content[40:44] = b"\xf0\xff\xff\xff"  # four gigabytes
    (tmp_path / "liar.wav").write_bytes(content)
    assert sum(len(block) for block in stream_mono(tmp_path / "liar.wav")) == RATE


@pytest.mark.parametrize(("rate", "channels"), [(192_000, 1), (44_100, 8), (8_000, 2)])
def test_other_rates_and_channels_become_the_same_sound(tmp_path, rate, channels):
    sound = np.repeat(tone(440, 1.0, rate)[:, None], channels, axis=1)
    path = put(tmp_path, "x.wav", sound, rate)
    found = np.concatenate(list(stream_mono(path)))
    assert len(found) == pytest.approx(RATE, abs=2)
    wanted = tone(440, 1.0, RATE, harmonics=8)[: len(found)]
    assert np.corrcoef(found[1000:15_000], wanted[1000:15_000])[0, 1] > 0.99


def test_one_sample_is_a_recording_too_short_to_train_on(tmp_path):
    put(tmp_path / "in", "one.wav", np.array([0.5], np.float32))
    prepared = prepare_recordings(tmp_path / "in", tmp_path / "out", Cutting(val_share=0.5))
    assert prepared.recordings[0].num_frames == 1
    with pytest.raises(DataError, match="as long"):
        cut_windows(prepared, "train", 1.0, 1.0)


@pytest.mark.parametrize("ending", ["flac", "ogg", "mp3"])
def test_compressed_formats_are_read(tmp_path, ending):
    path = put(tmp_path, f"x.{ending}", tone(440, 1.0))
    assert sum(len(block) for block in stream_mono(path)) == pytest.approx(RATE, abs=2000)


def test_odd_names_are_kept_and_shown(tmp_path, line):
    folder = tmp_path / "in"
    folder.mkdir()
    names = ["ünï 🎻.wav", "new\nline.wav", "$(reboot);'.wav", "-rf.wav", "a" * 200 + ".wav"]
    for number, name in enumerate(names):
        put(folder, name, line[number * 100 : RATE + number * 100])
    raw = Path(str(folder).encode().decode() + "/") / b"caf\xe9.wav".decode("utf-8", "surrogateescape")
    shutil.copy(put(tmp_path, "x.wav", line[: RATE // 2]), raw)
    found = prepare_recordings(folder, tmp_path / "out", Cutting(val_share=0.3))
    assert {one.name for one in found.recordings} == {*names, "caf\\xe9.wav"}
    assert read_prepared(tmp_path / "out") == found


def test_folders_without_recordings_say_what_was_found(tmp_path):
    with pytest.raises(DataError, match="no folder"):
        find_recordings(tmp_path / "none")
    with pytest.raises(DataError, match="no files"):
        find_recordings(tmp_path)
    (tmp_path / "x.m4a").touch()
    with pytest.raises(DataError, match=r"\.m4a"):
        find_recordings(tmp_path)
    put(tmp_path / "in", "silent.wav", silence(2))
    with pytest.raises(DataError, match=r"silent\.wav: it is silent"):
        prepare_recordings(tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize("wrong", [{"val_share": 0}, {"val_share": 1.0}, {"silence_db": 3}, {"longest_rest_s": -1}])
def test_impossible_cuts_are_refused(wrong):
    with pytest.raises(SpecError):
        Cutting(**wrong)


def test_every_heard_frame_is_in_one_split_only():
    random = np.random.default_rng(0)
    for _ in range(50):
        levels = [
            np.repeat(random.choice([-80.0, -20.0], 20), random.integers(1, 100, 20)).astype(np.float32)
            for _ in range(3)
        ]
        levels[0][:5] = -20
        cutting = Cutting(longest_rest_s=float(random.uniform(0, 0.5)), val_share=float(random.uniform(0.05, 0.95)))
        segments = cut_segments(levels, cutting)
        covered = [np.zeros(len(level), int) for level in levels]
        for one in segments:
            covered[one.recording][one.start : one.end] += 1
        assert max(count.max() for count in covered) == 1
        for level, count in zip(levels, covered, strict=True):
            assert count[level >= cutting.silence_db].all()


def write_hours(path, hours):
    """A wav of 8,000 samples a second, so that it fits on a disk."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(8_000)
        minute = (128 + 60 * tone(440, 60.0, 8_000)).astype(np.uint8).tobytes()
        for _ in range(round(hours * 60)):
            file.writeframes(minute)


def grown_kb(code, *arguments):
    """What a program prints, and the memory that it took at most beyond that of its first line's imports."""
    rest = "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    whole = f"import resource, sys\nfrom pathlib import Path\n{code}{rest}"
    command = [sys.executable, "-c", whole, *map(str, arguments)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_hours_are_streamed_in_the_memory_of_a_minute(tmp_path):
    code = (
        "from batchscale.instruments.sound.recordings import stream_mono\n"
        "assert sum(len(part) for part in stream_mono(Path(sys.argv[1]))) == int(sys.argv[2])\n"
    )
    peaks = []
    for hours in (1 / 60, 10):
        write_hours(tmp_path / "long.wav", hours)
        peaks.append(grown_kb(code, tmp_path / "long.wav", round(hours * 3600 * RATE)))
    assert peaks[1] - peaks[0] < 32 * 1024


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_preparing_an_hour_takes_little_more_memory_than_two_minutes(tmp_path):
    code = (
        "from batchscale.instruments.sound.preparation import prepare_recordings\n"
        "prepare_recordings(Path(sys.argv[1]), Path(sys.argv[2]))\n"
    )
    peaks = []
    for hours in (1 / 30, 1):
        (tmp_path / f"{hours}").mkdir()
        write_hours(tmp_path / f"{hours}" / "x.wav", hours)
        peaks.append(grown_kb(code, tmp_path / f"{hours}", tmp_path / f"out-{hours}"))
    assert peaks[1] - peaks[0] < 100 * 1024  # 230 MB as float32 samples; frames alone are 6 MB


@pytest.mark.parametrize("value", [1e25, -40.0, np.inf, np.nan])
def test_absurd_samples_are_refused_by_name(tmp_path, line, value):
    put(tmp_path / "in", "good.wav", line)
    bad = line.copy()
    bad[1000] = value
    put(tmp_path / "in", "bad.wav", bad, subtype="FLOAT")
    prepared = prepare_recordings(tmp_path / "in", tmp_path / "out")
    assert [recording.name for recording in prepared.recordings] == ["good.wav"]
    assert prepared.skipped["bad.wav"].startswith("samples ")
    assert np.isfinite(prepared.features(0).loudness_db).all()


def test_samples_above_full_scale_are_clipped_for_samples_and_features_alike_and_counted(tmp_path, line):
    loud = line * 8
    put(tmp_path / "in", "loud.wav", loud, subtype="FLOAT")
    put(tmp_path / "as_16_bits", "loud.wav", np.clip(loud, -1, 1), subtype="FLOAT")
    found = prepare_recordings(tmp_path / "in", tmp_path / "out")
    wanted = prepare_recordings(tmp_path / "as_16_bits", tmp_path / "other")
    assert found.recordings[0].sha256 == wanted.recordings[0].sha256  # samples and features
    count = int((np.abs(loud) > 1.05).sum())
    assert count > 100 and found.recordings[0].note.startswith(f"{count:,} samples above full scale are clipped")
    assert wanted.recordings[0].note == ""
    again = prepare_recordings(tmp_path / "in", tmp_path / "out")
    assert again.recordings == found.recordings  # the note is stored


@pytest.mark.parametrize(("name", "options"), [("b.flac", {}), ("b.wav", {"subtype": "FLOAT"}), ("b.aiff", {})])
@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24"])
def test_the_same_sound_in_another_format_is_found(tmp_path, line, name, options, subtype):
    put(tmp_path / "in", "a.wav", line, subtype="PCM_16")
    put(tmp_path / "in", name, line, **({"subtype": subtype} | options))
    prepared = prepare_recordings(tmp_path / "in", tmp_path / "out")
    assert [recording.name for recording in prepared.recordings] == ["a.wav"]
    assert prepared.skipped == {name: "it has the same sound as another recording, 'a.wav'"}


def test_another_sound_of_the_same_length_is_kept(tmp_path, line):
    put(tmp_path / "in", "a.wav", line)
    put(tmp_path / "in", "b.wav", line[::-1])
    assert len(prepare_recordings(tmp_path / "in", tmp_path / "out").recordings) == 2


def test_silent_and_cut_off_recordings_are_named(tmp_path, line):
    put(tmp_path / "in", "a.wav", line)
    put(tmp_path / "in", "quiet.wav", silence(3))
    whole = put(tmp_path / "in", "cut.wav", line * 0.5)
    whole.write_bytes(whole.read_bytes()[: 8 * RATE])
    prepared = prepare_recordings(tmp_path / "in", tmp_path / "out")
    assert prepared.skipped == {"quiet.wav": "it is silent."}
    assert {recording.name: "cut off" in recording.note for recording in prepared.recordings} == {
        "a.wav": False,
        "cut.wav": True,
    }
