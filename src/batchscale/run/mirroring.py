"""A run whose folder has a mirror: restored from it if the folder is empty, and copied to it as it grows."""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from batchscale.errors import RecordsError, one_line
from batchscale.formatting import count_text
from batchscale.records.mirror import Mirror, Mirroring, open_mirror
from batchscale.records.tree.layout import TRIAL_FILE, WORKING_FOLDER

Notify = Callable[[str], None]

_RECORDED = re.compile(rf"(.+)/([0-9]+)/{re.escape(TRIAL_FILE)}")
_BEGUN = re.compile(rf"{re.escape(WORKING_FOLDER)}/studies/(.+)/(?:journal-([0-9]+)|chosen-([0-9]+)\.json)")


@contextlib.contextmanager
def mirrored(root: Path | None, url: str | None, notify: Notify) -> Iterator[Callable[[], None]]:
    """Copy the tree at ``root`` to ``url`` inside the context; call the yielded function after each change.

    Nothing is copied before the first call: an attempt that is refused changes nothing in the mirror.

    Raises:
        StorageError: the mirror cannot be read or written at the start. Later failures are retried, and reported at the
            end.
        RecordsError: the mirror is damaged, or holds trials that the folder lacks.
    """
    if root is None or url is None:
        yield lambda: None
        return
    mirror = open_mirror(root, url)
    mirror.require_writable()
    if not mirror.is_empty:
        if root.is_dir() and any(root.iterdir()):
            _require_superset(root, mirror, url)
        else:
            notify(f"Restored {count_text(mirror.restore(), 'file')} from {url}.")
    with Mirroring(mirror) as mirroring:
        yield mirroring.request
    if mirror.problem is not None:
        notify(f"The mirror is not up to date: {mirror.problem} Run the same command again to update it.")


def _require_superset(root: Path, mirror: Mirror, url: str) -> None:
    """Refuse to replace a mirror by a folder that lacks its trials: it would lose them.

    Every recorded trial must be there. A trial that was only begun may have been dropped by the run, so a folder that
    has any trial passes.
    """
    local = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    missing = sorted(_recorded(mirror.names) - _recorded(local))
    begun = _begun(mirror.names)
    if not missing and begun and not (_begun(local) | _recorded(local)):
        missing = sorted(begun)
    if missing:
        raise RecordsError(
            f"{one_line(root, 300)} must be empty, to be restored from {url}, or hold the trials of that mirror. Found "
            f"a folder with other files that lacks {len(missing):,} of its trials, such as {missing[0]}. Pass an empty "
            "--out, or another --mirror."
        )


def _recorded(names: Iterable[str]) -> set[str]:
    matches = (_RECORDED.fullmatch(name) for name in names if not name.startswith(f"{WORKING_FOLDER}/"))
    return {f"{match[1]}/{match[2]}" for match in matches if match}


def _begun(names: Iterable[str]) -> set[str]:
    matches = (_BEGUN.fullmatch(name) for name in names)
    return {f"{match[1]}/{match[2] or match[3]}" for match in matches if match}
