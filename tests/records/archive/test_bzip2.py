"""bzip2 on every core gives what the standard library gives, sound or not."""

import bz2
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchscale.records.archive import stream as module
from batchscale.records.archive.bzip2 import UnusualBzip2Error, iter_decompressed, iter_in_turn
from batchscale.records.archive.stream import ArchiveLimits, ArchiveStream, DamagedArchiveError


def text(size, seed=0):
    return random.Random(seed).randbytes(size)  # incompressible: many blocks for few bytes


def in_turn(path):
    with path.open("rb") as file:
        return b"".join(data for data, _ in iter_in_turn(file.fileno()))


def decompressed(path, workers=3):
    with path.open("rb") as file:
        return b"".join(data for data, _ in iter_decompressed(file.fileno(), path.stat().st_size, workers))


@settings(deadline=None, max_examples=25)
@given(sizes=st.lists(st.integers(1, 350_000), min_size=1, max_size=3), level=st.integers(1, 2), seed=st.integers(0, 9))
def test_blocks_and_streams_of_any_length_are_given_in_order(tmp_path_factory, sizes, level, seed):
    path = tmp_path_factory.mktemp("bzip2") / "file.bz2"
    parts = [text(size, seed + i) for i, size in enumerate(sizes)]
    path.write_bytes(b"".join(bz2.compress(part, level) for part in parts))
    assert decompressed(path) == in_turn(path) == b"".join(parts)


def test_marks_are_found_where_two_pieces_of_the_scan_meet(tmp_path, monkeypatch):
    data = text(700_000)
    path = tmp_path / "file.bz2"
    path.write_bytes(bz2.compress(data, 1))
    for scanned in (50_001, 100_003, 7_919):
        monkeypatch.setattr("batchscale.records.archive.bzip2._SCANNED", scanned)
        assert decompressed(path) == data


def test_the_place_behind_each_block_grows_to_the_end_of_the_file(tmp_path):
    path = tmp_path / "file.bz2"
    path.write_bytes(bz2.compress(text(400_000), 1))
    with path.open("rb") as file:
        ends = [end for _, end in iter_decompressed(file.fileno(), path.stat().st_size, 2)]
    assert ends == sorted(ends) and len(ends) > 3
    assert path.stat().st_size - ends[-1] < 16  # the footer


@pytest.mark.parametrize("change", ["flip", "cut", "garbage", "check"])
def test_what_is_not_sound_is_left_to_the_standard_library(tmp_path, change):
    whole = bz2.compress(text(500_000), 1)
    middle = len(whole) // 2
    changed = {
        "flip": whole[:middle] + bytes([whole[middle] ^ 16]) + whole[middle + 1 :],
        "cut": whole[:middle],
        "garbage": whole + b"more",
        "check": whole[:-2] + bytes([whole[-2] ^ 16]) + whole[-1:],
    }[change]
    path = tmp_path / "file.bz2"
    path.write_bytes(changed)
    for read in (decompressed, in_turn):
        with pytest.raises(UnusualBzip2Error):
            read(path)


@pytest.mark.parametrize("name", ["sound", "flip", "cut", "garbage", "check", "empty"])
def test_one_core_and_several_give_the_same_bytes_and_the_same_damage(tmp_path, monkeypatch, name):
    whole = bz2.compress(text(500_000), 1)
    middle = len(whole) // 2
    contents = {
        "sound": whole,
        "flip": whole[:middle] + bytes([whole[middle] ^ 16]) + whole[middle + 1 :],
        "cut": whole[:middle],
        "garbage": whole + b"more",
        "check": whole[:-2] + bytes([whole[-2] ^ 16]) + whole[-1:],
        "empty": bz2.compress(b""),
    }
    path = tmp_path / "archive.tar.bz2"
    path.write_bytes(contents[name])
    answers = []
    for cores in (1, 4):
        monkeypatch.setattr(module, "count_cores", lambda cores=cores: cores)
        answers.append(read_all(path))
    if name == "check":  # a core alone gives up the last blocks with the checksum behind them
        assert answers[1][0].startswith(answers[0][0])
    else:
        assert answers[0] == answers[1]
    assert [damage is None for _, damage in answers] == [name in ("sound", "garbage", "empty")] * 2


def read_all(path):
    found, damage = [], None
    with ArchiveStream(path, ArchiveLimits()) as stream:
        try:
            while piece := stream.read(1000):
                found.append(piece)
        except DamagedArchiveError as error:
            damage = str(error).partition(" of the file")[0].rpartition(",")[0]  # how far is about
    return b"".join(found), damage
