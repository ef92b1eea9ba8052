"""Reads CSV files of users: limited in size, UTF-8, well formed; every error names the file and the line."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from batchscale.errors import BatchscaleError, one_line


def read_csv_lines(
    path: Path, content: str, max_bytes: int, error_type: type[BatchscaleError]
) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the cells of each row, the header included.

    Args:
        path: The file.
        content: The expected content, for messages: "a curve", "step times".
        max_bytes: The largest size.
        error_type: The error to raise if the file cannot be read.
    """
    yield from parse_csv_lines(_text(path, content, max_bytes, error_type), one_line(path, 300), error_type)


def parse_csv_lines(text: str, where: str, error_type: type[BatchscaleError]) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the cells of each row of a text; ``where`` names its place in messages."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise error_type(f"{where}, line {reader.line_num}: must be a line of CSV ({one_line(error)}).") from None


def _text(path: Path, content: str, max_bytes: int, error_type: type[BatchscaleError]) -> str:
    where = one_line(path, 300)
    try:
        if not path.is_file():
            raise error_type(f"{where}: {content} must be a CSV file. Found no file.")
        if path.stat().st_size > max_bytes:
            raise error_type(
                f"{where}: {content} must have at most {max_bytes:,} bytes. Found {path.stat().st_size:,}."
            )
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error_type(f"{where}: {content} must be text in UTF-8. Found other bytes.") from None
    except OSError as error:
        raise error_type(f"{where}: the file cannot be read ({one_line(error.strerror)}).") from None
