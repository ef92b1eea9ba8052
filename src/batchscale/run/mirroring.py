"""A run whose folder has a mirror: restored from it if the folder is empty, and copied to it as it grows."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from batchscale.formatting import count_text
from batchscale.records.mirror import Mirroring, open_mirror

Notify = Callable[[str], None]


@contextlib.contextmanager
def mirrored(root: Path | None, url: str | None, notify: Notify) -> Iterator[Callable[[], None]]:
    """Copy the tree at ``root`` to ``url`` inside the context; call the yielded function after each change.

    Raises:
        StorageError: the mirror cannot be read at the start. Later failures are retried, and reported at the end.
        RecordsError: the mirror is damaged, or ``url`` holds something else.
    """
    if root is None or url is None:
        yield lambda: None
        return
    mirror = open_mirror(root, url)
    if not mirror.is_empty and not (root.is_dir() and any(root.iterdir())):
        notify(f"Restored {count_text(mirror.restore(), 'file')} from {url}.")
    with Mirroring(mirror) as mirroring:
        yield mirroring.request
    if mirror.problem is not None:
        notify(f"The mirror is not up to date: {mirror.problem} Run the same command again to update it.")
