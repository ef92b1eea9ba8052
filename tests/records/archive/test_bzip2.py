"""bzip2 in large pieces gives the bytes of the standard library's file object, sound or not."""

import bz2
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchscale.records.archive import ArchiveLimits, ArchiveStream, DamagedArchiveError


def random_bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)  # incompressible: many blocks for few bytes


def read_stream(path: Path) -> tuple[bytes, str | None]:
    """Return the bytes that a stream gives, and its error."""
    pieces, damage = [], None
    with ArchiveStream(path, ArchiveLimits()) as stream:
        try:
            while piece := stream.read(1000):
                pieces.append(piece)
        except DamagedArchiveError as error:
            damage = str(error)
    return b"".join(pieces), damage


def read_file_object(path: Path) -> tuple[bytes, str | None]:
    """Return the bytes that the standard library gives, and its error."""
    pieces = []
    with bz2.open(path) as file:
        try:
            while piece := file.read1(2**20):
                pieces.append(piece)
        except (OSError, EOFError) as error:
            return b"".join(pieces), str(error)
    return b"".join(pieces), None


@settings(deadline=None, max_examples=25)
@given(sizes=st.lists(st.integers(1, 350_000), min_size=1, max_size=3), level=st.integers(1, 2), seed=st.integers(0, 9))
def test_blocks_and_streams_of_any_length_are_given_in_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], level: int, seed: int
) -> None:
    path = tmp_path_factory.mktemp("bzip2") / "file.bz2"
    parts = [random_bytes(size, seed + i) for i, size in enumerate(sizes)]
    path.write_bytes(b"".join(bz2.compress(part, level) for part in parts))
    assert read_stream(path) == (b"".join(parts), None)


def test_a_file_that_grows_a_thousandfold_is_given_in_order(tmp_path: Path) -> None:
    path = tmp_path / "file.bz2"
    path.write_bytes(bz2.compress(bytes(20_000_000)))
    assert read_stream(path) == (bytes(20_000_000), None)


@pytest.mark.parametrize("name", ["sound", "flip", "cut", "garbage", "check", "empty"])
def test_damage_has_the_bytes_and_the_reason_of_the_standard_library(tmp_path: Path, name: str) -> None:
    whole = bz2.compress(random_bytes(500_000), 1)
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
    data, damage = read_stream(path)
    expected, reason = read_file_object(path)
    assert data[: len(expected)] == expected[: len(data)]
    assert len(data) > len(expected) - 1000  # the read that fails gives nothing
    assert (damage is None) == (reason is None) == (name in ("sound", "garbage", "empty"))
    assert reason is None or f"({reason})" in str(damage)
