"""bzip2 beside a thread that parses: in large pieces, or the blocks of a file side by side on every core, in order.

A bzip2 stream is a row of blocks of at most 900 kB that do not depend on each other, each from a mark of 48 bits on
that may begin at any bit. A block between a header and a footer of its own is a stream that the standard library reads.
"""

import bz2
import os
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

_BLOCK = 0x314159265359
_END = 0x177245385090
_MARK_BITS, _CHECK_BITS = 48, 32
_FOOTER_BITS = _MARK_BITS + _CHECK_BITS
_SCANNED = 2**22
_TAKEN = 2**18
_PIECE = 2**20
_MOST_WORKERS = 8  # a hostile block may become 46 MB: this bounds the memory


class UnusualBzip2Error(ValueError):
    """The file is not a plain row of sound blocks: damaged, or one for the reader of the standard library."""


@dataclass(frozen=True)
class _Place:
    """A block by the bits of the file; ``check`` is the stream's checksum if it is the last block of one."""

    header: bytes
    start: int
    end: int
    check: int | None


def iter_decompressed(handle: int, size: int, workers: int) -> Generator[tuple[bytes, int], None, None]:
    """The bytes of each block of the open file, and the byte of the file behind it.

    Raises:
        UnusualBzip2Error: what was given so far is sound, and the rest must be read another way.
    """
    workers = min(workers, _MOST_WORKERS)
    combined = 0
    running: deque[tuple[_Place, Future[tuple[bytes, int]]]] = deque()
    places = _places(handle, size)
    with ThreadPoolExecutor(workers, "batchscale-bzip2") as pool:
        try:
            while True:
                while len(running) < workers + 2 and (place := next(places, None)) is not None:
                    running.append((place, pool.submit(_decompress, handle, place)))
                if not running:
                    return
                place, future = running.popleft()
                data, check = future.result()
                combined = ((combined << 1 | combined >> 31) & 0xFFFFFFFF) ^ check
                if place.check is not None:
                    if combined != place.check:
                        raise UnusualBzip2Error("the checksum of a stream does not agree")
                    combined = 0
                yield data, place.end // 8
        finally:
            for _, future in running:
                future.cancel()


def iter_in_turn(handle: int) -> Generator[tuple[bytes, int], None, None]:
    """The bytes of the open file in pieces of at most `_PIECE`, and the byte of the file behind each: on one core.

    The file object of the standard library takes 8 kB at a time, and waits after each until the thread that parses
    lets go of Python.

    Raises:
        UnusualBzip2Error: what was given so far is sound, and the rest must be read another way.
    """
    place, rest = 0, os.pread(handle, _TAKEN, 0)
    while rest:
        stream = bz2.BZ2Decompressor()
        while not stream.eof:
            if stream.needs_input and not rest:
                raise UnusualBzip2Error("the file ends within a stream")
            try:
                data = stream.decompress(rest, _PIECE)
            except (OSError, ValueError) as error:
                raise UnusualBzip2Error(str(error)) from None
            if data:
                yield data, place
            rest = b""
            if stream.needs_input:
                place += _TAKEN
                rest = os.pread(handle, _TAKEN, place)
        rest = stream.unused_data
        if not rest:
            place += _TAKEN
            rest = os.pread(handle, _TAKEN, place)


def _places(handle: int, size: int) -> Iterator[_Place]:
    """Every block in order; the end of one is the start of the next, or the footer of its stream."""
    header = os.pread(handle, 4, 0)
    if not _is_header(header):
        raise UnusualBzip2Error("there is no header at the start")
    start = None
    for mark in _marks(handle, size):
        if start is None:
            if mark != 8 * len(header):
                raise UnusualBzip2Error("there is no block behind the header")
        else:
            opening = os.pread(handle, 4, mark // 8 - 4) if mark % 8 == 0 else b""
            if _is_header(opening):
                yield _last_place(handle, header, start, mark // 8 - 4)
                header = opening
            else:
                yield _Place(header, start, mark, None)
        start = mark
    if start is None:
        raise UnusualBzip2Error("there is no block")
    yield _last_place(handle, header, start, size)


def _is_header(data: bytes) -> bool:
    return len(data) == 4 and data[:3] == b"BZh" and 0x31 <= data[3] <= 0x39


def _last_place(handle: int, header: bytes, start: int, end_byte: int) -> _Place:
    """The last block of a stream: its footer is a mark, a checksum and up to seven bits to the end of a byte."""
    size = _FOOTER_BITS // 8 + 1
    tail = int.from_bytes(os.pread(handle, size, end_byte - size), "big")
    for padding in range(8):
        footer = tail >> padding
        if (footer >> _CHECK_BITS) & (2**_MARK_BITS - 1) == _END:
            return _Place(header, start, 8 * end_byte - padding - _FOOTER_BITS, footer & 0xFFFFFFFF)
    raise UnusualBzip2Error("a stream has no footer")


def _marks(handle: int, size: int) -> Iterator[int]:
    """The bits of the file where a mark of a block begins, growing."""
    inner = []  # the whole bytes of a mark that begins 0, 1, … bits into a byte
    for shift in range(8):
        spread = (_BLOCK << (8 - shift)).to_bytes(7, "big")
        inner.append(spread[1:6] if shift else spread[:6])
    for offset in range(0, size, _SCANNED):
        data = os.pread(handle, _SCANNED + 6, offset)
        found = []
        for shift, pattern in enumerate(inner):
            before = 1 if shift else 0
            at = data.find(pattern, before)
            while at >= 0:
                begin = at - before
                value = int.from_bytes(data[begin : begin + 7].ljust(7, b"\0"), "big") >> (8 - shift)
                if begin < _SCANNED and value & (2**_MARK_BITS - 1) == _BLOCK:
                    found.append(8 * (offset + begin) + shift)
                at = data.find(pattern, at + 1)
        yield from sorted(found)


def _decompress(handle: int, place: _Place) -> tuple[bytes, int]:
    """The bytes of a block and its checksum."""
    first, shift = divmod(place.start, 8)
    bits = place.end - place.start
    whole, rest = divmod(bits, 8)
    raw = np.frombuffer(os.pread(handle, (place.end + 7) // 8 - first, first) + b"\0", np.uint8)
    body = (raw[:-1] << shift) | (raw[1:] >> (8 - shift)) if shift else raw[:-1]
    check = int.from_bytes(body[6:10].tobytes(), "big")
    left = int(body[whole]) >> (8 - rest) if rest else 0
    footer = ((left << _MARK_BITS | _END) << _CHECK_BITS) | check
    length = rest + _FOOTER_BITS
    end = (footer << (-length % 8)).to_bytes((length + 7) // 8, "big")
    try:
        return bz2.decompress(place.header + body[:whole].tobytes() + end), check
    except (OSError, ValueError, EOFError) as error:
        raise UnusualBzip2Error(str(error)) from None
