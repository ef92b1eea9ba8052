"""Where records are: every tree and table under the folders that the server was started with.

Each has an id made from its path; the browser only ever sends ids. Links are not followed, and every one is looked up
in the list that the walk made, so that no text from outside becomes a path.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import one_line
from batchscale.records.table.files import MANIFEST, is_table
from batchscale.records.tree.layout import MAX_DEPTH, STUDY_FILE, WORKING_FOLDER
from batchscale.web.refusals import RefusedError

MOST_FOLDERS = 5000
DEEPEST = MAX_DEPTH + 4
LEVELS_ABOVE_STUDY = 4  # batch size, optimizer, model, data set
LOOK_AGAIN_S = 5.0


@dataclass(frozen=True)
class RecordsFolder:
    """One records tree or table; ``name`` is its path below the folder it was found in, as printable text."""

    id: str
    path: Path
    name: str


class RecordsFolders:
    """All records in what is served, looked for again when the list is older than a few seconds. Thread-safe."""

    def __init__(self, served: tuple[Path, ...]) -> None:
        self.served = tuple(folder.resolve() for folder in served)
        self._lock = threading.Lock()
        self._found: dict[str, RecordsFolder] = {}
        self._by_root: dict[str, RecordsFolder] = {}
        self._tables: dict[str, tuple[int, bool]] = {}
        self._looked_at = float("-inf")

    def all(self, *, fresh: bool = False) -> list[RecordsFolder]:
        """Every one, in order of names."""
        with self._lock:
            if fresh or time.monotonic() - self._looked_at > LOOK_AGAIN_S:
                self._found = {folder.id: folder for folder in self._look()}
                self._looked_at = time.monotonic()
            return list(self._found.values())

    def find(self, folder_id: str) -> RecordsFolder:
        """The one of this id.

        Raises:
            RefusedError: there is none.
        """
        found = self._found.get(folder_id) or {folder.id: folder for folder in self.all()}.get(folder_id)
        if found is None:
            found = {folder.id: folder for folder in self.all(fresh=True)}.get(folder_id)
        if found is None or found.path.resolve() != found.path:
            raise RefusedError(404, "There are no records of this id, or not any more.")
        return found

    def _look(self) -> list[RecordsFolder]:
        """Walk what is served; a thousand are looked for every few seconds, so known ones stay as made."""
        found: dict[str, RecordsFolder] = {}
        for top in self.served:
            roots = set(_roots(str(top), str(top), 0, self._is_table))
            for root in sorted(roots - found.keys()):
                if len(found) < MOST_FOLDERS and not any(above in roots for above in _above(root)):
                    found[root] = self._by_root.get(root) or make_records_folder(Path(root), top)
        self._by_root = found
        return sorted(found.values(), key=lambda folder: folder.name)

    def _is_table(self, path: str) -> bool:
        """Whether a folder with a manifest is a table; read once as long as the manifest is the same."""
        try:
            changed_at = os.stat(f"{path}/{MANIFEST}").st_mtime_ns  # noqa: PTH116 - text, and a thousand of them
        except OSError:
            return False
        known = self._tables.get(path)
        if known is None or known[0] != changed_at:
            known = self._tables[path] = (changed_at, is_table(Path(path)))
        return known[1]


def make_records_folder(root: Path, top: Path) -> RecordsFolder:
    """The records at ``root``, which lies in ``top`` or is it."""
    name = top.name if root == top else str(root.relative_to(top))
    return RecordsFolder(folder_id(root), root, visible(name, 160))


def folder_id(path: Path) -> str:
    """Return the id of a folder, made from its path."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def visible(text: object, limit: int = 120) -> str:
    """Text from records for a page: printable, on one line, and without marks that turn its direction."""
    return one_line(text, limit)


def _roots(path: str, top: str, depth: int, is_table: Callable[[str], bool]) -> Iterator[str]:
    """The roots of records at and below a path, which is text: making a path of each takes longer than the walk."""
    try:
        with os.scandir(path) as entries:
            found = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    except OSError:
        return
    if found.get(WORKING_FOLDER) or (MANIFEST in found and is_table(path)):
        yield path
    elif STUDY_FILE in found:
        inside = [above for above in _above(path) if above == top or above.startswith(f"{top}/")]
        yield (inside[:LEVELS_ABOVE_STUDY] or [path])[-1]
    elif depth < DEEPEST:
        for name, is_folder in found.items():
            if is_folder and not name.startswith("."):
                yield from _roots(f"{path.rstrip('/')}/{name}", top, depth + 1, is_table)


def _above(path: str) -> Iterator[str]:
    """The folders that a path lies in, nearest first."""
    while path := path.rpartition("/")[0]:
        yield path
    yield "/"
