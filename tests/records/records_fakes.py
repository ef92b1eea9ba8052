"""Fakes for the records tests: a small study, a file system in memory that forgets what was not synced, and one that
crashes, fills up or tears at call N."""

import errno
import itertools
from pathlib import Path

from batchscale.records.durable import Entry, FileSystem, FileTooLargeError, NotAFileError
from batchscale.records.metadata.study import StudyMetadata
from batchscale.records.metadata.trial import TrialMetadata
from batchscale.records.model import Status, StudyRecord, TrialRecord
from batchscale.records.tree.measurements import Measurement
from batchscale.spec.space import SearchSpace
from batchscale.spec.workload_name import WorkloadName

SPACE = SearchSpace.from_json(
    {"learning_rate": {"type": "DOUBLE", "scale": "LOG_SCALE", "min_value": 1e-4, "max_value": 10.0}}
)
WORKLOAD = WorkloadName("groups/tiny", "net", "sgd")


def make_study(batch_size=8, train_steps=20, workload=WORKLOAD, **own):
    return StudyRecord(workload, batch_size, train_steps, False, SPACE, StudyMetadata(**own))


def make_trial(trial_id=1, steps=20, status=Status.COMPLETE, rate=0.1):
    return TrialRecord(trial_id, status, steps, {"learning_rate": rate}, TrialMetadata(seed=trial_id))


def make_rows(trial_id, steps):
    return [Measurement(step, {"val/error": trial_id + step / 7, "train/loss": 1 / (1 + step)}) for step in steps]


class Crash(BaseException):
    """The process is dead: nothing after this call happens."""


class MemoryFileSystem(FileSystem):
    """Files in memory with two states: what programs see now, and what a loss of power would leave.

    Changes of names are pending until a directory they touch is synced; bytes until their file is synced. At a loss of
    power each pending change of names is kept or dropped, but never kept when an earlier one in the same directory is
    dropped; pending bytes are kept, dropped, cut, or replaced by a hole of zeros.
    """

    def __init__(self, can_exchange=True):
        self.can_exchange = can_exchange
        self.ids = itertools.count(1)
        self.names = {0: {}}
        self.kept_names = {0: {}}
        self.pending = []
        self.data = {}
        self.kept_data = {}
        self.handles = {}
        self.locked = set()

    # what happens to a machine
    def kill(self):
        self.handles.clear()
        self.locked.clear()

    def lose_power(self, random):
        self.kill()
        dropped = set()
        for touched, changes in self.pending:
            if touched & dropped or random.random() < 0.5:
                dropped |= touched
            else:
                self._apply(self.kept_names, changes)
        self.pending = []
        self.names = {key: dict(entries) for key, entries in self.kept_names.items()}
        for key, now in self.data.items():
            self.data[key] = self.kept_data[key] = self._surviving(self.kept_data[key], now, random)

    @staticmethod
    def _surviving(kept, now, random):
        if kept == now:
            return kept
        fate = random.choice(("kept", "dropped", "cut", "hole"))
        if fate in ("kept", "dropped"):
            return now if fate == "kept" else kept
        start = random.randint(min(len(kept), len(now)), len(now))
        if fate == "cut":
            return now[:start]
        end = random.randint(start, len(now))
        return now[:start] + bytes(end - start) + now[end:]

    def files(self):
        """Every file as path -> bytes."""
        found, waiting = {}, [("", 0)]
        while waiting:
            path, key = waiting.pop()
            for name, child in self.names[key].items():
                if child in self.names:
                    waiting.append((f"{path}/{name}", child))
                else:
                    found[f"{path}/{name}"] = self.data[child]
        return found

    # the interface
    def _find(self, path):
        key = 0
        for name in filter(None, str(path).split("/")):  # a Path of it would cost a third of every test here
            if key not in self.names:
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
            if name not in self.names[key]:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            key = self.names[key][name]
        return key

    @staticmethod
    def _apply(names, changes):
        for folder, name, key in changes:
            if key is None:
                names[folder].pop(name, None)
            else:
                names[folder][name] = key

    def _change(self, *changes):
        self._apply(self.names, changes)
        self.pending.append(({folder for folder, _, _ in changes}, changes))

    def _new(self, path):
        folder = self._find(path.parent)
        if path.name in self.names[folder]:
            raise FileExistsError(errno.EEXIST, "exists", str(path))
        return folder, next(self.ids)

    def create(self, path):
        folder, key = self._new(path)
        self.data[key] = self.kept_data[key] = b""
        self._change((folder, path.name, key))
        return self._open(key)

    def _open(self, key):
        handle = next(self.ids)
        self.handles[handle] = key
        return handle

    def open_append(self, path):
        return self._open(self._find(path))

    def write(self, handle, data):
        self.data[self.handles[handle]] += bytes(data)

    def fsync(self, handle):
        key = self.handles[handle]
        self.kept_data[key] = self.data[key]

    fdatasync = fsync

    def close(self, handle):
        key = self.handles.pop(handle)
        self.locked.discard(key)

    def sync_directory(self, path):
        wanted, last = {self._find(path)}, -1
        for index in range(len(self.pending) - 1, -1, -1):  # what a synced change stands on is synced with it
            if self.pending[index][0] & wanted:
                wanted |= self.pending[index][0]
                last = max(last, index)
        remaining = []
        for touched, changes in self.pending:
            if touched & wanted:
                self._apply(self.kept_names, changes)
            else:
                remaining.append((touched, changes))
        self.pending = remaining

    def replace(self, source, target):
        key = self._find(source)
        folder, home = self._find(target.parent), self._find(source.parent)
        old = self.names[folder].get(target.name)
        if old is not None and (old in self.names) != (key in self.names):
            raise IsADirectoryError(errno.EISDIR, "is a directory", str(target))
        if self.names.get(old):
            raise OSError(errno.ENOTEMPTY, "not empty", str(target))
        self._change((home, source.name, None), (folder, target.name, key))

    def exchange(self, one, other):
        if not self.can_exchange:
            return False
        first, second = self._find(one), self._find(other)
        self._change((self._find(one.parent), one.name, second), (self._find(other.parent), other.name, first))
        return True

    def mkdir(self, path):
        folder, key = self._new(path)
        self.names[key], self.kept_names[key] = {}, {}
        self._change((folder, path.name, key))

    def rmdir(self, path):
        if self.names[self._find(path)]:
            raise OSError(errno.ENOTEMPTY, "not empty", str(path))
        self._change((self._find(path.parent), path.name, None))

    def unlink(self, path):
        if self._find(path) in self.names:
            raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
        self._change((self._find(path.parent), path.name, None))

    def exists(self, path):
        try:
            self._find(path)
        except OSError:
            return False
        return True

    def is_dir(self, path):
        return self.exists(path) and self._find(path) in self.names

    def list_directory(self, path):
        entries = self.names[self._find(path)]
        return [Entry(name, entries[name] in self.names) for name in sorted(entries)]

    def resolve(self, path):
        return Path(path)

    def read(self, path, limit):
        key = self._find(path)
        if key in self.names:
            raise NotAFileError(f"{path}: a folder")
        if len(self.data[key]) > limit:
            raise FileTooLargeError(path, len(self.data[key]), limit)
        return self.data[key]

    def lock(self, path):
        handle = self.open_append(path) if self.exists(path) else self.create(path)
        key = self.handles[handle]
        if key in self.locked:
            del self.handles[handle]
            return None
        self.locked.add(key)
        return handle

    def stamp(self, handle, data):
        self.data[self.handles[handle]] = data


CALLS = [name for name in vars(FileSystem) if not name.startswith("_")]


class FaultyFileSystem:
    """Passes every call on, but at call ``at`` the process dies or the disk is full.

    A write at that call is torn after ``tear`` bytes. ``lasting``: the disk stays full from then on.
    """

    def __init__(self, inner, at, kind="crash", tear=0, lasting=False):
        self.inner, self.at, self.kind, self.tear, self.lasting = inner, at, kind, tear, lasting
        self.count = 0
        self.dead = False

    def __getattr__(self, name):
        assert name in CALLS, name
        call = getattr(self.inner, name)

        def counted(*args):
            if self.dead:
                raise Crash
            self.count += 1
            now = self.count == self.at or (self.lasting and self.count > self.at)
            if now and self.kind == "crash":
                self.dead = True
                self._torn_write(name, args)
                raise Crash
            if now and name in (
                "create",
                "write",
                "fsync",
                "fdatasync",
                "mkdir",
                "replace",
                "exchange",
                "stamp",
                "lock",
            ):
                self._torn_write(name, args)
                raise OSError(errno.ENOSPC, "No space left on device")
            return call(*args)

        return counted

    def _torn_write(self, name, args):
        if name == "write" and self.tear:
            handle, data = args
            self.inner.write(handle, bytes(data)[: self.tear])
