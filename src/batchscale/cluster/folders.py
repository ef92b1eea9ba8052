"""A folder of files as bytes, for a host that has none of the run's disks."""

import json
from pathlib import Path, PurePosixPath

from batchscale.cluster.frames import pack_parts, unpack_parts


def pack_folder(folder: Path) -> bytes:
    """The files of a folder and of those in it; empty if there are none."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not files:
        return b""
    names = json.dumps([path.relative_to(folder).as_posix() for path in files]).encode()
    return pack_parts([names, *(path.read_bytes() for path in files)])


def unpack_folder(data: bytes, folder: Path) -> None:
    """Write the files of `pack_folder` into a folder.

    Raises:
        ValueError: a name points out of the folder.
    """
    names, *contents = unpack_parts(data)
    for name, content in zip(json.loads(names), contents, strict=True):
        inner = PurePosixPath(name)
        if inner.is_absolute() or ".." in inner.parts:
            raise ValueError(f"the name '{name}' points out of its folder")
        path = folder / inner
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
