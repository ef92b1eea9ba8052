"""Files of JSON lines: bounded, and read although their last line was cut off."""

from pathlib import Path
from typing import Any

from batchscale.errors import RecordsError, one_line
from batchscale.spec.untrusted_text import parse_json

MAX_FILE_BYTES = 4 * 2**30
MAX_LINE_BYTES = 16 * 2**20


def read_json_lines(path: Path) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return the objects of a file, one per line, and notices; a cut-off last line is left out.

    Raises:
        RecordsError: a line is no JSON object, or the file is too large.
    """
    where = one_line(path, 300)
    entries: list[dict[str, Any]] = []
    require_size(path, MAX_FILE_BYTES)
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            if not line.endswith(b"\n") and len(line) == MAX_LINE_BYTES:
                raise RecordsError(f"{where}, line {number}: a line must have at most {MAX_LINE_BYTES:,} bytes.")
            if not line.strip():
                continue
            try:
                entry = parse_json(line.decode("utf-8"))
            except (ValueError, UnicodeDecodeError) as error:
                if not line.endswith(b"\n"):
                    return entries, (f"The last line of {where} is cut off and left out.",)
                raise RecordsError(f"{where}, line {number}: must be a JSON object ({one_line(error)}).") from None
            if not isinstance(entry, dict):
                raise RecordsError(f"{where}, line {number}: must be a JSON object. Found {type(entry).__name__}.")
            entries.append(entry)
    return entries, ()


def require_size(path: Path, limit: int) -> None:
    """Refuse a file that is larger than ``limit`` bytes."""
    if (size := path.stat().st_size) > limit:
        raise RecordsError(f"{one_line(path, 300)}: the file must have at most {limit:,} bytes. Found {size:,}.")
