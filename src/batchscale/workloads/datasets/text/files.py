"""Sentences of text files, one a line, plain or gzipped, or one a row of Parquet; the share of them that is held out.

Imports no jax.
"""

import gzip
import hashlib
import itertools
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, one_line

_PARQUET = ".parquet"
_SUFFIXES = (".txt", ".txt.gz", ".text", ".tokens", _PARQUET)
_LONGEST_LINE = 64 * 2**20
_ROWS = 4096
_WHOLE_HASH_LIMIT = 256 * 2**20
_SAMPLE = 2**20


def find_text_files(path: Path) -> list[Path]:
    """Return the file itself, or the text files of a folder and its sub-folders in the order of their names."""
    if path.is_file():
        return [path]
    return sorted(p for p in path.rglob("*") if p.name.endswith(_SUFFIXES) and p.is_file()) if path.is_dir() else []


def has_text_files(folder: Path) -> bool:
    """True if there is any text file."""
    return bool(find_text_files(folder))


def require_text_files(option: str, path: str) -> list[Path]:
    """Return the files that an option names, or raise DataError."""
    files = find_text_files(Path(path).expanduser())
    if not files:
        raise DataError(
            f"The option `{option}` must name a text file, or a folder of *.txt or *.parquet files. Found {path!r}."
        )
    return files


def iter_sentences(files: Sequence[Path], column: str = "text") -> Iterator[str]:
    """Yield every line, or every row of a Parquet file's column, that is not empty, without the space around it.

    Raises:
        DataError: A file cannot be read, is not UTF-8 or has too long a line; the message names file and line.
    """
    for file in files:
        if file.suffix == _PARQUET:
            yield from _iter_rows(file, column)
            continue
        try:
            with _open(file) as lines:
                for number, line in enumerate(iter(lambda: lines.readline(_LONGEST_LINE + 1), b""), 1):
                    sentence = _decode(file, number, line)
                    if sentence:
                        yield sentence
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{file} cannot be read: {one_line(error)}.") from error


def _iter_rows(file: Path, column: str) -> Iterator[str]:
    """Yield the texts of a Parquet file, some thousand rows in memory at a time."""
    import polars as pl

    try:
        schema = pl.read_parquet_schema(file)
        if column not in schema:
            raise DataError(
                f"{file} must have a column {column!r}; set the option text_column to one of its columns: "
                f"{one_line(', '.join(schema))}."
            )
        if schema[column] != pl.String:
            raise DataError(f"{file}: column {column!r} must be text. Found the type {schema[column]}.")
        frame = pl.scan_parquet(file).select(column)
        for start in itertools.count(step=_ROWS):
            texts = frame.slice(start, _ROWS).collect()[column].to_list()
            yield from (text.strip() for text in texts if text and text.strip())
            if len(texts) < _ROWS:
                return
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{file} cannot be read as Parquet: {one_line(error)}.") from error


def hash_files(files: Sequence[Path]) -> str:
    """Return a digest of the content of files, independent of their names.

    Of a file above 256 MB only size, time of change and three samples count: hashing a corpus of terabytes at every
    start would take longer than training.
    """
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        try:
            _hash_file(file, digest)
        except OSError as error:
            raise DataError(f"{file} cannot be read: {one_line(error.strerror)}.") from error
    return digest.hexdigest()


def _hash_file(file: Path, digest: "hashlib.blake2b") -> None:
    info = file.stat()
    digest.update(f"{info.st_size}\n".encode())
    with file.open("rb") as content:
        if info.st_size <= _WHOLE_HASH_LIMIT:
            while chunk := content.read(_SAMPLE):
                digest.update(chunk)
            return
        digest.update(f"{info.st_mtime_ns}\n".encode())
        for start in (0, info.st_size // 2, info.st_size - _SAMPLE):
            content.seek(start)
            digest.update(content.read(_SAMPLE))


def _open(file: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(file)) if file.suffix == ".gz" else file.open("rb")


def _decode(file: Path, number: int, line: bytes) -> str:
    if len(line) > _LONGEST_LINE:
        raise DataError(
            f"{file}, line {number}: a line must have at most {_LONGEST_LINE // 2**20} MiB, for it is encoded as one "
            "sentence. Break the text into lines."
        )
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        raise DataError(f"{file}, line {number}: text must be UTF-8 ({one_line(error.reason)}).") from None


_CHUNK = 1 << 16


def held_out_draw(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each sentence, by splitmix64: as good as random, and the same everywhere.

    A permutation would need the number of sentences beforehand and eight bytes for each of billions.
    """
    mixed = numbers.astype(np.uint64) + np.uint64(1)
    with np.errstate(over="ignore"):
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return (mixed >> np.uint64(11)) / 2.0**53


def is_held_out(start: int, share: float) -> NDArray[np.bool_]:
    """Return a mask of the 65,536 sentences from ``start`` on, True for those that are held out."""
    return held_out_draw(np.arange(start, start + _CHUNK)) < share


def split_held_out(num_sentences: int, share: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of the sentences to train on, and of those held out, both in growing order."""
    mask = np.concatenate(
        [is_held_out(start, share) for start in range(0, num_sentences, _CHUNK)] or [np.zeros(0, bool)]
    )[:num_sentences]
    return np.flatnonzero(~mask), np.flatnonzero(mask)
