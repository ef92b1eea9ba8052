"""Find the studies and trials of a records tree by the names of their folders. Nothing is parsed here.

Links are followed only inside the tree: one that leads outside is refused, one that leads to a folder above itself too.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import RecordsError, SpecError, one_line
from batchscale.records.durable import REAL, Entry, FileSystem
from batchscale.records.tree.layout import (
    MAX_DEPTH,
    MAX_JSON_BYTES,
    STUDY_FILE,
    TRIAL_FILE,
    folder_number,
    name_study,
    require_directory,
)
from batchscale.spec.untrusted_text import parse_json
from batchscale.spec.workload_name import WorkloadName


@dataclass(frozen=True)
class StudyFolder:
    """A folder with a ``study.json``, or one that should have it. ``folders`` are the names from the tree's root."""

    path: Path
    folders: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def has_file(self) -> bool:
        """True if the ``study.json`` exists."""
        return any(entry.name == STUDY_FILE for entry in self.entries)

    @functools.cached_property
    def trial_ids(self) -> list[int]:
        """The ids that the trials' folders are named by, sorted."""
        numbers = (folder_number(entry.name) for entry in self.entries if entry.is_dir)
        return sorted(number for number in numbers if number is not None)


class RefusalError(RecordsError):
    """A path that is not followed: ``rule`` is the reason, ``found`` what is there."""

    def __init__(self, message: str, path: Path, rule: str, found: str) -> None:
        super().__init__(message)
        self.path = path
        self.rule = rule
        self.found = found


OnRefusal = Callable[[RefusalError], None]


class OutsideLinkError(RefusalError):
    """A symbolic link that leads out of the tree, or in a circle."""

    def __init__(self, path: Path, target: Path) -> None:
        super().__init__(
            f"{path}: a symbolic link leads to a place inside the tree, and not in a circle. Found a link to "
            f"{one_line(target, 300)}. Replace it by what it should lead to, or remove it.",
            path,
            "outside-link",
            f"a link to {one_line(target, 300)}",
        )


class UnlistableError(RefusalError):
    """A folder that cannot be listed."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path}: every folder of the tree can be listed. Found: {reason}.", path, "unreadable", reason
        )


def refuse(error: RefusalError) -> None:
    """Raise the refusal: for callers that do not collect them."""
    raise error


def iter_studies(root: Path, fs: FileSystem = REAL, on_refusal: OnRefusal = refuse) -> Iterator[StudyFolder]:
    """Yield the study folders of the tree, or of the part of a tree, at ``root``, in order of their paths.

    ``on_refusal`` receives links that lead outside and folders that cannot be listed; unless it raises, they are
    skipped.

    Raises:
        RecordsError: there is no directory.
    """
    if fs is REAL:
        require_directory(root)
    yield from _walk(fs.resolve(root), root, (), fs, on_refusal)


def list_folder(base: Path, folder: Path, fs: FileSystem = REAL, on_refusal: OnRefusal = refuse) -> list[Entry]:
    """Return the entries of a folder in the tree at ``base``, links replaced by their targets inside the tree."""
    try:
        entries = fs.list_directory(folder)
    except OSError as error:
        on_refusal(UnlistableError(folder, error.strerror or str(error)))
        return []
    if not any(entry.is_link for entry in entries):
        return entries
    followed = [_follow(base, folder, entry, fs, on_refusal) if entry.is_link else entry for entry in entries]
    return [entry for entry in followed if entry is not None]


def _follow(base: Path, folder: Path, entry: Entry, fs: FileSystem, on_refusal: OnRefusal) -> Entry | None:
    path = folder / entry.name
    try:
        target = fs.resolve(path)
    except (OSError, RuntimeError):
        return Entry(entry.name, is_dir=False)  # a dead link: reading the file will fail
    real_folder = fs.resolve(folder)
    if not target.is_relative_to(base) or real_folder == target or real_folder.is_relative_to(target):
        on_refusal(OutsideLinkError(path, target))
        return None
    return Entry(entry.name, fs.is_dir(target))


def _walk(
    base: Path, folder: Path, folders: tuple[str, ...], fs: FileSystem, on_refusal: OnRefusal
) -> Iterator[StudyFolder]:
    entries = list_folder(base, folder, fs, on_refusal)
    study = StudyFolder(folder, folders, tuple(entries))
    if study.has_file or _should_be_study(study, fs):
        yield study
        return
    if len(folders) >= MAX_DEPTH:
        return
    for entry in entries:
        if entry.is_dir and not entry.name.startswith("."):
            yield from _walk(base, folder / entry.name, (*folders, entry.name), fs, on_refusal)


def _should_be_study(study: StudyFolder, fs: FileSystem) -> bool:
    """True if a folder without ``study.json`` is in the place of a study, or has trials in it."""
    if study.folders and folder_number(study.folders[-1]) is None:
        return False
    if name_study(study.folders) is not None and not any(
        entry.is_dir and folder_number(entry.name) is None for entry in study.entries
    ):
        return True
    return any(fs.exists(study.path / str(number) / TRIAL_FILE) for number in study.trial_ids)


def name_folder(study: StudyFolder, text: bytes) -> tuple[WorkloadName, int]:
    """Return the workload and batch size of a study, from its folders if they name them.

    A path that is read may lie inside a tree, without the folders above it: then ``study.json`` names them.

    Raises:
        RecordsError: neither names a workload.
    """
    names = name_study(study.folders)
    if names is not None:
        return names
    if len(study.folders) >= 4:
        raise RecordsError(
            f"{study.path}: a study lies in DATASET/MODEL/OPTIMIZER/BATCH_SIZE, names of letters, digits and _ . + -. "
            f"Found {one_line('/'.join(study.folders))}."
        )
    try:
        data = parse_json(text)
        name = WorkloadName(str(data["dataset"]), str(data["model"]), str(data["optimizer"]))
        size = data["batch_size"] if not study.folders else folder_number(study.folders[-1])
    except (ValueError, KeyError, TypeError, SpecError) as error:
        raise RecordsError(
            f"{study.path / STUDY_FILE}: the study must name its workload ({one_line(error)})."
        ) from None
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise RecordsError(f"{study.path}: the folder of a study is named by its batch size.")
    return name, size


def read_file(path: Path | str, limit: int = MAX_JSON_BYTES, fs: FileSystem = REAL) -> bytes:
    """Return the bytes of a file of the tree; raises RecordsError if it is missing or cannot be read."""
    try:
        return fs.read(path, limit)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise RecordsError(f"{path}: the file is missing.") from None
        raise RecordsError(f"{path}: the file cannot be read ({error.strerror}).") from None
