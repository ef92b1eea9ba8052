"""The mirror of a records tree: what is new goes to the remote path while the run goes on.

Contents are kept under their hash, and a manifest says which file has which. The manifest is written last, so that what
can be read is always one state of the tree, whatever was cut off. Records also lie there under their own names, for
people and for other tools. A mirror that cannot be reached never stops a run: it is tried again, and said.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from batchscale.errors import StorageError
from batchscale.records.mirror.manifest import MANIFEST, MirroredFile, describe, manifest_text, parse_manifest
from batchscale.records.mirror.restore import restore_tree
from batchscale.records.mirror.store import RemoteStore
from batchscale.records.run_paths import RunPaths
from batchscale.records.tree.layout import WORKING_FOLDER

_LEFT_OUT = (".lock", ".log", ".writing")
LAST_S = 300.0
"""The longest that the end of a run waits for its mirror."""

_UNFINISHED = ".orbax-checkpoint-tmp"


class Mirror:
    """The mirror of one tree. `sync` may be called at any time, from one thread at a time."""

    def __init__(self, root: Path, store: RemoteStore) -> None:
        self._root = root
        self._store = store
        content = store.get(MANIFEST)
        self._there: dict[str, MirroredFile] = {} if content is None else parse_manifest(content, store.url)
        self._seen: dict[
            str, tuple[int, int, MirroredFile]
        ] = {}  # by name: size and time of change when last looked at
        self.problem: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever mirrored there."""
        return not self._there

    def restore(self) -> int:
        """Write what the mirror has to the tree's folder, which must be empty; the number of files."""
        return restore_tree(self._root, self._there, self._store)

    def sync(self) -> bool:
        """Bring the mirror up to date; False if it could not be done now, with ``problem`` saying why."""
        try:
            self._sync()
        except StorageError as error:
            self.problem = str(error)
            return False
        self.problem = None
        return True

    def _sync(self) -> None:
        now: dict[str, MirroredFile] = {}
        known = {entry.sha256 for entry in self._there.values()}
        for name, path in self._list():
            found = self._look(name, path)
            if found is None:
                continue  # it was removed meanwhile
            entry, content = found
            if content is None and entry != self._there.get(name):  # the last round did not come this far
                content = self._read_again(name, path, entry)
                if content is None:
                    continue
            now[name] = entry
            if content is None or entry == self._there.get(name):
                continue
            if entry.sha256 not in known:
                self._store.put(entry.object_name, content)
                known.add(entry.sha256)
            if not name.startswith(f"{WORKING_FOLDER}/"):
                self._store.put(f"tree/{name}", content)
        if now == self._there:
            return
        self._store.put(MANIFEST, manifest_text(now))
        kept = {entry.sha256 for entry in now.values()}
        gone = [entry for entry in self._there.values() if entry.sha256 not in kept]
        self._there = now
        for entry in gone:
            self._store.remove(entry.object_name)

    def _look(self, name: str, path: Path) -> tuple[MirroredFile, bytes | None] | None:
        """A file's entry, and its content if it had to be read; None if it is gone."""
        try:
            facts = path.stat()
            seen = self._seen.get(name)
            if seen is not None and seen[:2] == (facts.st_size, facts.st_mtime_ns):
                return seen[2], None
            content = path.read_bytes()
        except OSError:
            return None
        entry = describe(content)
        self._seen[name] = (facts.st_size, facts.st_mtime_ns, entry)
        return entry, content

    def _read_again(self, name: str, path: Path, entry: MirroredFile) -> bytes | None:
        """The content of a file that was looked at before; None if it is another one now, which the next round has."""
        try:
            content = path.read_bytes()
        except OSError:
            return None
        if describe(content) == entry:
            return content
        del self._seen[name]
        return None

    def _list(self) -> Iterator[tuple[str, Path]]:
        """The files to mirror: measurements before the metadata that says they are complete."""
        logs = RunPaths(self._root).logs
        for folder, folders, names in os.walk(self._root):
            folders[:] = sorted(one for one in folders if _UNFINISHED not in one and Path(folder, one) != logs)
            for name in sorted(names, key=lambda one: (one.endswith(".json"), one)):
                path = Path(folder) / name
                if not name.endswith(_LEFT_OUT) and path.is_file() and not path.is_symlink():
                    yield path.relative_to(self._root).as_posix(), path


class Mirroring:
    """A thread that keeps a mirror up to date: soon after it is asked to, and every so often anyway."""

    def __init__(self, mirror: Mirror, every_s: float = 60.0) -> None:
        self._mirror = mirror
        self._every_s = every_s
        self._wanted = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._work, daemon=True, name="mirror")

    def __enter__(self) -> "Mirroring":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Bring it up to date a last time; what cannot be done stays said in the mirror's ``problem``."""
        self._ended = True
        self._wanted.set()
        self._thread.join(LAST_S)
        if self._thread.is_alive():
            self._mirror.problem = f"the last copy did not end within {LAST_S:g} s."

    def ask(self) -> None:
        """There is something new."""
        self._wanted.set()

    def _work(self) -> None:
        while True:
            self._wanted.wait(self._every_s)
            last = self._ended
            self._wanted.clear()
            self._mirror.sync()
            if last:
                return
            time.sleep(0.2)  # a burst of changes is one round


def open_mirror(root: Path, url: str, pause: Callable[[float], None] = time.sleep) -> Mirror:
    """The mirror of a tree at a remote path, once it is known that it can be read.

    Raises:
        StorageError: it cannot be reached, or a library is missing.
        RecordsError: what lies there is no mirror.
    """
    return Mirror(root, RemoteStore(url, pause))
