"""A run whose folder has a mirror: restored from it where there is nothing local, and copied to it as it grows."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from batchscale.records.mirror import Mirroring, open_mirror

Say = Callable[[str], None]


@contextlib.contextmanager
def mirrored(root: Path | None, url: str | None, say: Say) -> Iterator[Callable[[], None]]:
    """Inside, the tree at ``root`` is copied to ``url``; call what is given whenever there is something new.

    Raises:
        StorageError: the mirror cannot be read at the start. Later failures are tried again, and said at the end.
        RecordsError: what lies there is no mirror, or is damaged.
    """
    if root is None or url is None:
        yield lambda: None
        return
    mirror = open_mirror(root, url)
    if not mirror.is_empty and not (root.is_dir() and any(root.iterdir())):
        say(f"Restored {mirror.restore()} files from {url}.")
    with Mirroring(mirror) as mirroring:
        yield mirroring.request
    if mirror.problem is not None:
        say(f"The mirror is not up to date: {mirror.problem} The same command again brings it there.")
