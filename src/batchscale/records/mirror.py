"""The mirror of a records tree with its working files on a remote path, updated while the run continues.

Contents are stored under their hash, and a manifest maps each file to its hash. The manifest is written last, so that a
reader always gets one state of the tree, wherever an update was cut off. Records also lie there under their own names,
for people and for other tools. A mirror that cannot be reached never stops a run: it is tried again, and reported.
"""

import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from batchscale.errors import RecordsError, StorageError, one_line
from batchscale.records.durable import storing
from batchscale.records.remote_store import RemoteStore
from batchscale.records.tree.layout import WORKING_FOLDER, RunPaths

MANIFEST = "manifest.json"
WRITE_CHECK = "write-check"
VERSION = 1
MAX_FILES = 10_000_000
LAST_S = 300.0
"""The longest that the end of a run waits for its mirror."""

_SKIPPED_ENDINGS = (".lock", ".log", ".writing")


@dataclass(frozen=True)
class MirroredFile:
    """A file of the tree: its size, and the hash that its content is stored under."""

    size: int
    sha256: str

    @property
    def object_name(self) -> str:
        """The name of its content in the mirror."""
        return f"objects/{self.sha256[:2]}/{self.sha256}"


def describe(content: bytes) -> MirroredFile:
    """Return the manifest's entry for a file with this content."""
    return MirroredFile(len(content), hashlib.sha256(content).hexdigest())


def manifest_text(files: Mapping[str, MirroredFile]) -> bytes:
    """Return the manifest as JSON."""
    listed = {name: [entry.size, entry.sha256] for name, entry in sorted(files.items())}
    return json.dumps({"version": VERSION, "files": listed}).encode()


def parse_manifest(content: bytes, url: str) -> dict[str, MirroredFile]:
    """Return the files that a manifest lists.

    Raises:
        RecordsError: it is no manifest, of a later version, or names files outside of the tree.
    """
    try:
        manifest = json.loads(content)
        version, listed = manifest["version"], manifest["files"]
        if version != VERSION:
            raise RecordsError(f"{url}: mirrors of version {VERSION} are read. Found {one_line(version)}.")
        files = {_checked_name(name, url): _parse_entry(value) for name, value in listed.items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, RecordsError):
            raise
        raise RecordsError(f"{url}: {MANIFEST} lists the files of a mirror. Found something else there.") from None
    if len(files) > MAX_FILES:
        raise RecordsError(f"{url}: a mirror has at most {MAX_FILES:,} files. Found {len(files):,}.")
    return files


def _checked_name(name: str, url: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or any(part in ("..", ".") for part in path.parts) or "\0" in name:
        raise RecordsError(f"{url}: files of a mirror lie in its tree. Found {one_line(repr(name))}.")
    return str(path)


def _parse_entry(value: Any) -> MirroredFile:
    size, digest = value
    if not isinstance(size, int) or size < 0 or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise ValueError
    return MirroredFile(size, digest)


class Mirror:
    """The mirror of one tree. `sync` may be called at any time, from one thread at a time."""

    def __init__(self, root: Path, store: RemoteStore) -> None:
        self._root = root
        self._store = store
        content = store.get(MANIFEST)
        self._mirrored: dict[str, MirroredFile] = {} if content is None else parse_manifest(content, store.url)
        self._read: dict[str, tuple[int, int, MirroredFile]] = {}  # by name: size and time of change when last read
        self.problem: str | None = None

    @property
    def is_empty(self) -> bool:
        """True if nothing was ever mirrored there."""
        return not self._mirrored

    @property
    def names(self) -> Collection[str]:
        """The files of the tree that the mirror holds."""
        return self._mirrored.keys()

    def require_writable(self) -> None:
        """Write a small file and remove it again.

        Raises:
            StorageError: the mirror cannot be written.
        """
        self._store.put(WRITE_CHECK, b"")
        self._store.remove(WRITE_CHECK)

    def restore(self) -> int:
        """Write the mirror's files to the tree's folder, all of them or none, and return their number.

        Raises:
            RecordsError: the folder is not empty, or the mirror lacks a file or has another one in its place.
            StorageError: it cannot be read or written.
        """
        root = self._root
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise RecordsError(f"{root}: a tree is restored into an empty folder. Found something there.")
        staging = root.with_name(f"{root.name}.restoring")
        with storing("restoring a mirror", root):
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir(parents=True)
            try:
                for name, entry in self._mirrored.items():
                    path = staging / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(self._download(name, entry))
                if root.exists():
                    root.rmdir()
                staging.replace(root)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
        return len(self._mirrored)

    def sync(self) -> bool:
        """Bring the mirror up to date; False if that is impossible now, with the reason in ``problem``."""
        try:
            self._sync()
        except StorageError as error:
            self.problem = str(error)
            return False
        self.problem = None
        return True

    def _download(self, name: str, entry: MirroredFile) -> bytes:
        content = self._store.get(entry.object_name)
        if content is None or describe(content) != entry:
            raise RecordsError(
                f"{self._store.url}: the file {name} of the mirror is {'missing' if content is None else 'damaged'}. "
                "Give another --mirror to begin anew, or restore the bucket."
            )
        return content

    def _sync(self) -> None:
        current: dict[str, MirroredFile] = {}
        stored = {entry.sha256 for entry in self._mirrored.values()}
        for name, path in self._list():
            described = self._describe(name, path)
            if described is None:
                continue  # it was removed meanwhile
            entry, content = described
            if content is None and entry != self._mirrored.get(name):  # the last round did not come this far
                content = self._read_again(name, path, entry)
                if content is None:
                    continue
            current[name] = entry
            if content is None or entry == self._mirrored.get(name):
                continue
            if entry.sha256 not in stored:
                self._store.put(entry.object_name, content)
                stored.add(entry.sha256)
            if not name.startswith(f"{WORKING_FOLDER}/"):
                self._store.put(f"tree/{name}", content)
        if current == self._mirrored:
            return
        self._store.put(MANIFEST, manifest_text(current))
        used = {entry.sha256 for entry in current.values()}
        unused = [entry for entry in self._mirrored.values() if entry.sha256 not in used]
        self._mirrored = current
        for entry in unused:
            self._store.remove(entry.object_name)

    def _describe(self, name: str, path: Path) -> tuple[MirroredFile, bytes | None] | None:
        """Return a file's entry, and its content if it had to be read; None if the file is gone."""
        try:
            state = path.stat()
            last = self._read.get(name)
            if last is not None and last[:2] == (state.st_size, state.st_mtime_ns):
                return last[2], None
            content = path.read_bytes()
        except OSError:
            return None
        entry = describe(content)
        self._read[name] = (state.st_size, state.st_mtime_ns, entry)
        return entry, content

    def _read_again(self, name: str, path: Path, entry: MirroredFile) -> bytes | None:
        """Return the content of a file that was read before; None if it has changed since: the next round has it."""
        try:
            content = path.read_bytes()
        except OSError:
            return None
        if describe(content) == entry:
            return content
        del self._read[name]
        return None

    def _list(self) -> Iterator[tuple[str, Path]]:
        """Yield the files to mirror: measurements before the metadata that marks them as complete."""
        logs = RunPaths(self._root).logs
        for parent, folders, names in os.walk(self._root):
            folders[:] = sorted(name for name in folders if Path(parent, name) != logs)
            for name in sorted(names, key=lambda name: (name.endswith(".json"), name)):
                path = Path(parent) / name
                if not name.endswith(_SKIPPED_ENDINGS) and path.is_file() and not path.is_symlink():
                    yield path.relative_to(self._root).as_posix(), path


class Mirroring:
    """A thread that updates a mirror: soon after each request, and after the first every ``every_s`` seconds too.

    A context that ends with an error before the first request leaves the mirror as it is.
    """

    def __init__(self, mirror: Mirror, every_s: float = 60.0) -> None:
        self._mirror = mirror
        self._every_s = every_s
        self._began = threading.Event()
        self._requested = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._work, daemon=True, name="mirror")

    def __enter__(self) -> "Mirroring":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Update the mirror a last time; the reason for a failure stays in its ``problem``."""
        self._ended = True
        if kind is not None and not self._began.is_set():
            return  # the thread waits, and ends with the process
        self.request()
        self._thread.join(LAST_S)
        if self._thread.is_alive():
            self._mirror.problem = f"the last copy did not end within {LAST_S:g} s."

    def request(self) -> None:
        """Request an update."""
        self._requested.set()
        self._began.set()

    def _work(self) -> None:
        self._began.wait()
        while True:
            self._requested.wait(self._every_s)
            last = self._ended
            self._requested.clear()
            self._mirror.sync()
            if last:
                return
            time.sleep(0.2)  # a burst of changes is one round


def open_mirror(root: Path, url: str, pause: Callable[[float], None] = time.sleep) -> Mirror:
    """Open the mirror of a tree at a remote path; its manifest is read at once.

    Raises:
        StorageError: it cannot be reached, or a library is missing.
        RecordsError: what lies there is no mirror.
    """
    return Mirror(root, RemoteStore(url, pause))
