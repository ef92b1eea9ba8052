"""Download one file over HTTP: resumed after an interruption, given up when it stalls, complete or absent. No jax.

Bytes go to a ``.part`` file named after the address, so that a part from one mirror is never continued with bytes of
another. The caller's ``check`` raises DataError if the bytes are wrong. Decision 0187 has the reasons for own code.
"""

import errno
import hashlib
import http.client
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from batchscale import __version__
from batchscale.errors import DataError, one_line

_CHUNK = 1 << 18
_LEAST_GAIN = 1 << 16  # a connection that brings less counts as one that brings nothing
_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416
_BROKEN = (OSError, http.client.HTTPException)  # URLError and time-outs are OSErrors; see _is_local
DownloadProgress = Callable[[int, int | None], None]
"""Called with the bytes so far and the total, None if the server does not give it."""


@dataclass(frozen=True)
class Patience:
    """Limits: seconds without a byte, and connections in a row that bring next to nothing."""

    stall_s: float = 30.0
    attempts: int = 3


PATIENCE = Patience()


def download(
    mirrors: Sequence[str],
    folder: Path,
    check: Callable[[Path], None],
    *,
    limit: int,
    progress: DownloadProgress,
    patience: Patience = PATIENCE,
) -> Path:
    """Return the path of a checked file in ``folder``, from the first mirror that has it.

    Raises:
        DataError: No mirror has it; the message has the reason of each.
    """
    failures: list[str] = []
    for url in mirrors:
        part = folder / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.part"
        for _ in range(2):  # bytes of an earlier run may be wrong: then again from the start
            resumed = part.exists()
            try:
                _fetch(url, part, limit, progress, patience)
                check(part)
            except (DataError, *_BROKEN) as error:
                if _is_local(error):
                    raise
                if isinstance(error, DataError):
                    part.unlink(missing_ok=True)
                failures.append(f"{url}: {one_line(error, 300)}")
                if not (resumed and isinstance(error, DataError)):
                    break
            else:
                return part
    raise DataError("No mirror has the file:\n  " + "\n  ".join(failures or ["no address is known"]))


def _fetch(url: str, part: Path, limit: int, progress: DownloadProgress, patience: Patience) -> None:
    """Fill ``part`` from where it ends, over as many connections as bring something new."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise DataError("an address must start with http:// or https://; for files on this machine use --from")
    failures_in_a_row = 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            if _receive(url, part, limit, progress, patience.stall_s):
                return
            reason: Exception = ConnectionError("the connection ended early")
        except urllib.error.HTTPError as error:
            error.close()
            raise
        except _BROKEN as error:
            if _is_local(error):
                raise
            reason = error
        gain = (part.stat().st_size if part.exists() else 0) - before
        failures_in_a_row = failures_in_a_row + 1 if gain < _LEAST_GAIN else 0
        if failures_in_a_row >= patience.attempts:
            raise ConnectionError(
                f"{failures_in_a_row} attempts in a row received almost nothing ({one_line(reason)})"
            ) from reason


def _receive(url: str, part: Path, limit: int, progress: DownloadProgress, stall_s: float) -> bool:
    """Receive over one connection; True if the file is complete afterwards."""
    start = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": f"batchscale/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the scheme was checked
    try:
        response = urllib.request.urlopen(request, timeout=stall_s)  # noqa: S310
    except urllib.error.HTTPError as error:
        if error.code != _RANGE_NOT_SATISFIABLE or not start:
            raise
        error.close()
        return _ends_at(error.headers.get("Content-Range"), start, part)
    with response:
        if not (response.status == _PARTIAL_CONTENT and _starts_at(response.headers.get("Content-Range"), start)):
            start = 0  # the server does not resume: from the beginning
        length = response.headers.get("Content-Length")
        total = start + int(length) if length is not None and length.isdigit() else None
        _check_room(part, start, total, limit)
        with part.open("r+b" if start else "wb") as file:
            file.seek(start)
            done = start
            while chunk := response.read1(_CHUNK):
                done += len(chunk)
                if done > limit:
                    raise DataError(f"the file is larger than the {limit:,} bytes it may have")
                file.write(chunk)
                progress(done, total)
    return total is None or done == total


def _is_local(error: Exception) -> bool:
    """True if this machine's disk fails, not the network: then no other mirror helps."""
    if not isinstance(error, OSError) or isinstance(error, urllib.error.URLError):
        return False
    return error.filename is not None or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def _starts_at(content_range: str | None, start: int) -> bool:
    return content_range is not None and content_range.startswith(f"bytes {start}-")


def _ends_at(content_range: str | None, start: int, part: Path) -> bool:
    """True if the part is the whole file, after "nothing beyond byte N"; a part that is too long is removed."""
    complete = content_range == f"bytes */{start}"
    if not complete:
        part.unlink()
    return complete


def _check_room(part: Path, start: int, total: int | None, limit: int) -> None:
    if total is not None and total > limit:
        raise DataError(f"the server offers {total:,} bytes where at most {limit:,} are right")
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - start > free:
        raise OSError(errno.ENOSPC, f"No space left for {total - start:,} bytes ({free:,} are free)", str(part.parent))
