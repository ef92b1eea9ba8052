"""Lines of a CSV file that a user gave: bounded, UTF-8, well formed; every complaint names the file and the line."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from batchscale.errors import BatchscaleError, one_line


def read_csv_lines(
    path: Path, what: str, max_bytes: int, refusal: type[BatchscaleError]
) -> Iterator[tuple[int, list[str]]]:
    """The line number and the cells of each row, the header included.

    Args:
        path: The file.
        what: What it should be, for messages: "a curve", "step times".
        max_bytes: The most that it may hold.
        refusal: The error that says why the file cannot be read.
    """
    where = one_line(path, 300)
    reader = csv.reader(io.StringIO(_text(path, what, max_bytes, refusal), newline=""), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise refusal(f"{where}, line {reader.line_num}: not a line of CSV ({one_line(error)}).") from None


def _text(path: Path, what: str, max_bytes: int, refusal: type[BatchscaleError]) -> str:
    where = one_line(path, 300)
    try:
        if not path.is_file():
            raise refusal(f"Expected {what} as a CSV file. Found no file at {where}.")
        if path.stat().st_size > max_bytes:
            raise refusal(f"{where}: {what} has at most {max_bytes:,} bytes. Found {path.stat().st_size:,}.")
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise refusal(f"{where}: {what} is text in UTF-8. Found other bytes.") from None
    except OSError as error:
        raise refusal(f"{where}: the file cannot be read ({one_line(error.strerror)}).") from None
