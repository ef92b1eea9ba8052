"""Uploads of recordings: streamed to disk, limited in size, number and time, and checked before they are stored.

The server names the file; of the browser's name only letters, digits and the ending are used. The preparation decides
in a process of its own if a recording is usable; here its first bytes must match its ending.
"""

import asyncio
import os
import re
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from batchscale.formatting import size
from batchscale.web.refusals import RefusedError
from batchscale.web.settings import Limits
from batchscale.web.status import LOW_BYTES, disk_space

HEAD = 12
KINDS = {
    ".wav": re.compile(rb"(RIFF|RF64)....WAVE", re.DOTALL),
    ".flac": re.compile(rb"fLaC"),
    ".ogg": re.compile(rb"OggS"),
    ".oga": re.compile(rb"OggS"),
    ".mp3": re.compile(rb"ID3|\xff[\xe0-\xff]"),
    ".aif": re.compile(rb"FORM....AIF", re.DOTALL),
    ".aiff": re.compile(rb"FORM....AIF", re.DOTALL),
}


def list_uploads(folder: Path) -> list[Path]:
    """Return the complete uploads in a folder: regular files, no links."""
    if not folder.is_dir():
        return []
    paths = (path for path in sorted(folder.iterdir()) if not path.name.startswith("."))
    return [path for path in paths if path.suffix in KINDS and path.is_file() and not path.is_symlink()]


def choose_name(file_name: str, number: int) -> str:
    """Return the name under which an upload is stored.

    >>> choose_name("../My Violin №1.WAV", 3)
    '003-My-Violin-1.wav'
    """
    stem, dot, ending = file_name.rpartition(".")
    ending = f".{ending.lower()}"
    if not dot or ending not in KINDS:
        raise RefusedError(415, f"A recording's name must end in one of {', '.join(KINDS)}. Found another ending.")
    clean = re.sub(r"[^A-Za-z0-9_]+", "-", stem).strip("-")[:40] or "recording"
    return f"{number:03d}-{clean}{ending}"


async def save_upload(chunks: AsyncIterator[bytes], folder: Path, file_name: str, limits: Limits) -> Path:
    """Store an upload as a file of the folder; nothing stays if it is rejected or cut off.

    Raises:
        RefusedError: It is too large, too slow, too many, of another kind than its name says, or the disk is full.
    """
    uploads = list_uploads(folder)
    if len(uploads) >= limits.upload_files:
        raise RefusedError(413, f"An instrument has at most {limits.upload_files} recordings. Found {len(uploads)}.")
    room = disk_space(folder)
    max_bytes = min(limits.upload_bytes, limits.upload_total_bytes - sum(path.stat().st_size for path in uploads))
    max_bytes = max_bytes if room is None else min(max_bytes, room.free - LOW_BYTES)
    number = 1 + max((int(path.name[:3]) for path in uploads if path.name[:3].isdigit()), default=0)
    target = folder / choose_name(file_name, number)
    part = folder / f".{secrets.token_hex(8)}.part"
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            async with asyncio.timeout(limits.upload_s):
                async for chunk in _checked(chunks, max_bytes, KINDS[target.suffix], limits):
                    await asyncio.to_thread(file.write, chunk)
        part.rename(target)
    except TimeoutError:
        raise RefusedError(408, "The upload takes too long.") from None
    except OSError as error:
        raise RefusedError(507, f"The recording could not be stored: {error.strerror}.") from None
    finally:
        part.unlink(missing_ok=True)
    return target


async def _checked(
    chunks: AsyncIterator[bytes], max_bytes: int, kind: re.Pattern[bytes], limits: Limits
) -> AsyncIterator[bytes]:
    """Yield the chunks while they arrive in time, are not too large, and begin as their kind does."""
    received, head, iterator = 0, b"", aiter(chunks)
    while True:
        async with asyncio.timeout(limits.body_s):
            chunk = await anext(iterator, None)
        if chunk is None:
            break
        received += len(chunk)
        if received > max_bytes:
            raise RefusedError(
                413, f"A recording has at most {size(limits.upload_bytes)}, all together have at most "
                f"{size(limits.upload_total_bytes)}, and some of the disk stays free.",
            )  # fmt: skip
        is_checked = len(head) >= HEAD
        head = head if is_checked else head + chunk[:HEAD]
        if not is_checked and len(head) >= HEAD and not kind.match(head):
            raise RefusedError(415, "The file is not of the kind that its ending names.")
        yield chunk
    if len(head) < HEAD:
        raise RefusedError(415, "The file is too short to be a recording.")
