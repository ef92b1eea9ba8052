"""The folders of records: every tree and table under the folders that the server was started with.

Each has an id made from its path; browsers send ids only. Links are not followed, and every id is looked up in the list
that the walk made, so no text from outside becomes a path.
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

MAX_FOLDERS = 5000
MAX_LEVELS = MAX_DEPTH + 4
LEVELS_ABOVE_STUDY = 4  # batch size, optimizer, model, data set
WALK_EVERY_S = 5.0


@dataclass(frozen=True)
class RecordsFolder:
    """One records tree or table; ``name`` is its path below the folder it was found in, as printable text."""

    id: str
    path: Path
    name: str


class RecordsFolders:
    """All records in the served folders; the list is renewed when it is older than a few seconds. Thread-safe."""

    def __init__(self, served: tuple[Path, ...]) -> None:
        self.served = tuple(folder.resolve() for folder in served)
        self._lock = threading.Lock()
        self._folders: dict[str, RecordsFolder] = {}
        self._by_root: dict[str, RecordsFolder] = {}
        self._tables: dict[str, tuple[int, bool]] = {}
        self._walked_at = float("-inf")

    def all(self, *, fresh: bool = False) -> list[RecordsFolder]:
        """Return all folders of records, in order of names."""
        with self._lock:
            if fresh or time.monotonic() - self._walked_at > WALK_EVERY_S:
                self._folders = {folder.id: folder for folder in self._walk()}
                self._walked_at = time.monotonic()
            return list(self._folders.values())

    def find(self, id_: str) -> RecordsFolder:
        """Return the folder of an id.

        Raises:
            RefusedError: it does not exist.
        """
        folder = self._folders.get(id_) or {item.id: item for item in self.all()}.get(id_)
        if folder is None:
            folder = {item.id: item for item in self.all(fresh=True)}.get(id_)
        if folder is None or folder.path.resolve() != folder.path:
            raise RefusedError(404, "There are no records of this id, or not any more.")
        return folder

    def _walk(self) -> list[RecordsFolder]:
        """Walk the served folders; folders of the last walk are reused, because there may be a thousand."""
        folders: dict[str, RecordsFolder] = {}
        for top in self.served:
            roots = set(_roots(str(top), str(top), 0, self._is_table))
            for root in sorted(roots - folders.keys()):
                if len(folders) < MAX_FOLDERS and not any(above in roots for above in _above(root)):
                    folders[root] = self._by_root.get(root) or make_records_folder(Path(root), top)
        self._by_root = folders
        return sorted(folders.values(), key=lambda item: item.name)

    def _is_table(self, path: str) -> bool:
        """True if a folder with a manifest is a table; checked again only if the manifest has changed."""
        try:
            changed_at = os.stat(f"{path}/{MANIFEST}").st_mtime_ns  # noqa: PTH116 - text is faster, and there are a thousand
        except OSError:
            return False
        checked = self._tables.get(path)
        if checked is None or checked[0] != changed_at:
            checked = self._tables[path] = (changed_at, is_table(Path(path)))
        return checked[1]


def make_records_folder(root: Path, top: Path) -> RecordsFolder:
    """Return the records at ``root``, which is ``top`` or lies in it."""
    name = top.name if root == top else str(root.relative_to(top))
    return RecordsFolder(folder_id(root), root, visible(name, 160))


def folder_id(path: Path) -> str:
    """Return the id of a folder, made from its path."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def visible(text: object, limit: int = 120) -> str:
    """Return text from records for a page: printable, on one line, and without marks that turn its direction."""
    return one_line(text, limit)


def _roots(path: str, top: str, depth: int, is_table: Callable[[str], bool]) -> Iterator[str]:
    """Yield the roots of records at and below a path; paths are text, which is faster."""
    try:
        with os.scandir(path) as entries:
            names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    except OSError:
        return
    if names.get(WORKING_FOLDER) or (MANIFEST in names and is_table(path)):
        yield path
    elif STUDY_FILE in names:
        inside = [above for above in _above(path) if above == top or above.startswith(f"{top}/")]
        yield (inside[:LEVELS_ABOVE_STUDY] or [path])[-1]
    elif depth < MAX_LEVELS:
        for name, is_folder in names.items():
            if is_folder and not name.startswith("."):
                yield from _roots(f"{path.rstrip('/')}/{name}", top, depth + 1, is_table)


def _above(path: str) -> Iterator[str]:
    """Yield the folders that a path lies in, nearest first."""
    while path := path.rpartition("/")[0]:
        yield path
    yield "/"
