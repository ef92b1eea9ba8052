"""Where records are: every tree and table under the folders that the server was started with.

A place has an id made from its path; the browser only ever sends ids. Links are not followed, and every place is looked
up in the list that the walk made, so that no text from outside becomes a path.
"""

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import one_line
from batchscale.records import MANIFEST, MAX_DEPTH, STUDY_FILE, WORKING_FOLDER, RunPaths, is_table
from batchscale.web.refusals import RefusedError

MOST_PLACES = 5000
DEEPEST = MAX_DEPTH + 4
LEVELS_ABOVE_STUDY = 4  # batch size, optimizer, model, data set
LOOK_AGAIN_S = 5.0


@dataclass(frozen=True)
class Place:
    """One records tree or table; ``name`` is its path below the folder it was found in, as printable text."""

    id: str
    path: Path
    name: str
    is_table: bool

    @property
    def has_run(self) -> bool:
        """Whether a run has ever written here."""
        return RunPaths(self.path).status.exists()


class Places:
    """The places under some folders, looked for again when the list is older than a few seconds. Thread-safe."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self.folders = tuple(folder.resolve() for folder in folders)
        self._lock = threading.Lock()
        self._found: dict[str, Place] = {}
        self._looked_at = float("-inf")

    def all(self, *, fresh: bool = False) -> list[Place]:
        """Every place, in order of names."""
        with self._lock:
            if fresh or time.monotonic() - self._looked_at > LOOK_AGAIN_S:
                self._found = {place.id: place for place in self._look()}
                self._looked_at = time.monotonic()
            return list(self._found.values())

    def find(self, place_id: str) -> Place:
        """The place of this id.

        Raises:
            RefusedError: there is none.
        """
        found = self._found.get(place_id) or {place.id: place for place in self.all()}.get(place_id)
        if found is None:
            found = {place.id: place for place in self.all(fresh=True)}.get(place_id)
        if found is None or found.path.resolve() != found.path:
            raise RefusedError(404, "There are no records of this id, or not any more.")
        return found

    def _look(self) -> list[Place]:
        places: dict[Path, Place] = {}
        for folder in self.folders:
            roots = set(_roots(folder, folder, 0))
            for root in sorted(roots):
                if len(places) < MOST_PLACES and roots.isdisjoint(root.parents):
                    places[root] = make_place(root, folder)
        return sorted(places.values(), key=lambda place: place.name)


def make_place(root: Path, folder: Path) -> Place:
    """The place at ``root``, which lies in ``folder`` or is it."""
    name = folder.name if root == folder else str(root.relative_to(folder))
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    return Place(digest, root, visible(name, 160), is_table(root))


def visible(text: object, limit: int = 120) -> str:
    """Text from records for a page: printable, on one line, and without marks that turn its direction."""
    return one_line(text, limit)


def _roots(path: Path, top: Path, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(path) as entries:
            found = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    except OSError:
        return
    if found.get(WORKING_FOLDER) or (MANIFEST in found and is_table(path)):
        yield path
    elif STUDY_FILE in found:
        above = path.parents[:LEVELS_ABOVE_STUDY]
        yield next((root for root in reversed(above) if root == top or top in root.parents), path)
    elif depth < DEEPEST:
        for name, is_folder in found.items():
            if is_folder and not name.startswith("."):
                yield from _roots(path / name, top, depth + 1)
