"""Text files with one sentence a line, plain or gzipped, as sentences. Imports no jax."""

import gzip
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast

from batchscale.errors import DataError, one_line

_SUFFIXES = (".txt", ".txt.gz", ".text", ".tokens")
_WHOLE_HASH_LIMIT = 256 * 2**20
_SAMPLE = 2**20


def find_text_files(path: Path) -> list[Path]:
    """The file itself, or the text files of a folder and its sub-folders in the order of their names."""
    if path.is_file():
        return [path]
    return sorted(p for p in path.rglob("*") if p.name.endswith(_SUFFIXES) and p.is_file()) if path.is_dir() else []


def has_text_files(folder: Path) -> bool:
    """Whether there is any text file."""
    return bool(find_text_files(folder))


def require_text_files(option: str, path: str) -> list[Path]:
    """The files that an option names, or a DataError."""
    files = find_text_files(Path(path).expanduser())
    if not files:
        raise DataError(f"The option `{option}` must name a text file, or a folder of *.txt files. Found {path!r}.")
    return files


def iter_sentences(files: Sequence[Path]) -> Iterator[str]:
    """Every line that is not empty, without the space around it.

    Raises:
        DataError: A file cannot be read or is not UTF-8; the message names file and line.
    """
    for file in files:
        try:
            with _open(file) as lines:
                for number, line in enumerate(lines, 1):
                    sentence = _decode(file, number, line)
                    if sentence:
                        yield sentence
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{file} cannot be read: {one_line(error)}.") from error


def hash_files(files: Sequence[Path]) -> str:
    """A digest of the content of files, whatever their names.

    Of a file above 256 MB only size, time of change and three samples count: hashing a corpus of terabytes at every
    start would take longer than training.
    """
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        info = file.stat()
        digest.update(f"{info.st_size}\n".encode())
        with file.open("rb") as content:
            if info.st_size <= _WHOLE_HASH_LIMIT:
                while chunk := content.read(_SAMPLE):
                    digest.update(chunk)
                continue
            digest.update(f"{info.st_mtime_ns}\n".encode())
            for start in (0, info.st_size // 2, info.st_size - _SAMPLE):
                content.seek(start)
                digest.update(content.read(_SAMPLE))
    return digest.hexdigest()


def _open(file: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(file)) if file.suffix == ".gz" else file.open("rb")


def _decode(file: Path, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        raise DataError(f"{file}, line {number}: text must be UTF-8 ({one_line(error.reason)}).") from None
