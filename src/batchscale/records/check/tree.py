"""Check a records tree against the format: every violation, with its path and line, not only the first.

The working files under ``.batchscale`` are no part of the format; only the owners of journals are checked, because
journals become records. nan, inf and empty cells are legal values of a metric for any status: the trial diverged, or
the metric was not measured.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import RecordsError, one_line
from batchscale.records.check.texts import CheckedStudy, CheckedTrial, check_study_text, check_trial_text
from batchscale.records.durable import REAL, Entry, FileSystem, FileTooLargeError, NotAFileError
from batchscale.records.model import Status
from batchscale.records.rules import ALL_RULES, UNREADABLE_RULES, Fault
from batchscale.records.tree.bulk import read_measurement_files
from batchscale.records.tree.committed import journal_number
from batchscale.records.tree.folders import RefusalError, StudyFolder, iter_studies, list_folder
from batchscale.records.tree.journal import JournalOwner, decode_journal
from batchscale.records.tree.layout import (
    MAX_CSV_BYTES,
    MAX_JSON_BYTES,
    MAX_LINE_BYTES,
    MEASUREMENTS_FILE,
    STUDY_FILE,
    TRIAL_FILE,
    WORKING_FOLDER,
    StudyPaths,
    folder_number,
    name_study,
)
from batchscale.records.tree.measurements import BYTE_ORDER_MARK, checksum_fault, measurements_checksum, parse_header

OnUncovered = Callable[[Path], None]
"""Receives each ``study.json`` and ``metadata.json`` without a checksum: changes there cannot be found."""


def ignore_uncovered(_: Path) -> None:
    """Ignore a file without a checksum: for callers that only need violations."""


@dataclass(frozen=True)
class Violation:
    """A place in a tree that breaks a rule of the format."""

    path: Path
    line: int | None
    rule: str
    found: str

    @property
    def is_unreadable(self) -> bool:
        """True if something could not be read, so that more may be wrong there."""
        return self.rule in UNREADABLE_RULES

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.rule}: {ALL_RULES[self.rule]}; found {self.found}"


def check_tree(path: Path, fs: FileSystem = REAL, on_uncovered: OnUncovered = ignore_uncovered) -> list[Violation]:
    """Return every violation in the tree (or part of a tree) at ``path``, in order of paths and lines.

    Raises:
        RecordsError: there is no directory, or nothing in it that is or should be a study.
    """
    return sorted(
        iter_violations(path, fs, on_uncovered),
        key=lambda violation: (violation.path.parts, violation.line or 0, violation.rule),
    )


def iter_violations(
    path: Path, fs: FileSystem = REAL, on_uncovered: OnUncovered = ignore_uncovered
) -> Iterator[Violation]:
    """Yield the violations study by study."""
    tree = _Tree(path, fs.resolve(path) if fs.exists(path) else path, fs, on_uncovered)
    studies = []
    for study in iter_studies(path, fs, tree.refuse):
        studies.append(study)
        _check_study(study, tree)
        yield from tree.take()
    _check_workload_folders(studies, tree)
    yield from tree.take()
    if not studies and not tree.refused:
        raise RecordsError(
            f"A records tree holds DATASET/MODEL/OPTIMIZER/BATCH_SIZE/study.json. Found no study in {path}."
        )


class _Tree:
    """The tree being checked, and the violations since the last `take`."""

    def __init__(self, root: Path, base: Path, fs: FileSystem, on_uncovered: OnUncovered) -> None:
        self.root = root
        self.on_uncovered = on_uncovered
        self.refused: set[Path] = set()
        self._base = base
        self._fs = fs
        self._violations: list[Violation] = []

    def refuse(self, error: RefusalError) -> None:
        if error.path not in self.refused:
            self.refused.add(error.path)
            self.add(error.path, Fault(None, error.rule, error.found))

    def add(self, path: Path, *faults: Fault) -> None:
        self._violations += [Violation(path, fault.line, fault.rule, fault.found) for fault in faults]

    def take(self) -> list[Violation]:
        violations, self._violations = self._violations, []
        return violations

    def list(self, folder: Path) -> list[Entry]:
        return list_folder(self._base, folder, self._fs, self.refuse)

    def has(self, folder: Path) -> bool:
        return self._fs.is_dir(folder)

    def read(self, path: Path, limit: int) -> bytes | None:
        """Return the bytes, or None and add a violation; only None for a link that was refused."""
        if path in self.refused:
            return None
        try:
            return self._fs.read(path, limit)
        except FileNotFoundError:
            fault = Fault(None, "missing-file", "no such file")
        except FileTooLargeError as error:
            fault = Fault(None, "too-large", f"{error.size:,} bytes")
        except NotAFileError:
            fault = Fault(None, "not-a-file", "a folder, pipe or device")
        except OSError as error:
            fault = Fault(None, "unreadable", error.strerror or one_line(error))
        self.add(path, fault)
        return None


def _check_workload_folders(studies: list[StudyFolder], tree: _Tree) -> None:
    """Check the other entries beside studies: the published reader takes every folder there for a batch size."""
    study_paths = {study.path for study in studies}
    for folder in sorted({study.path.parent for study in studies if study.folders}):
        for entry in tree.list(folder):
            path = folder / entry.name
            is_working = folder == tree.root and entry.name == WORKING_FOLDER
            if entry.is_dir and path not in study_paths and not is_working:
                tree.add(path, Fault(None, "folder-name", one_line(repr(entry.name))))
            elif not entry.is_dir and folder_number(entry.name) is not None:
                tree.add(path, Fault(None, "not-a-folder", "a file"))


def _check_study(study: StudyFolder, tree: _Tree) -> None:
    checked: CheckedStudy | None = None
    names = name_study(study.folders)
    if names is None and len(study.folders) >= 4:
        tree.add(study.path, Fault(None, "workload-name", one_line("/".join(study.folders))))
    text = tree.read(study.path / STUDY_FILE, MAX_JSON_BYTES)
    if text is not None:
        batch_size = folder_number(study.folders[-1]) if study.folders else None
        checked, faults = check_study_text(text, names[0] if names else None, batch_size)
        tree.add(study.path / STUDY_FILE, *faults)
        if checked is not None and not checked.covered:
            tree.on_uncovered(study.path / STUDY_FILE)
    for entry in study.entries:
        number = folder_number(entry.name)
        if entry.is_dir and number is None:
            tree.add(study.path / entry.name, Fault(None, "folder-name", one_line(repr(entry.name))))
        elif not entry.is_dir and number is not None:
            tree.add(study.path / entry.name, Fault(None, "not-a-folder", "a file"))
    trials = {trial_id: _check_metadata(study, trial_id, checked, tree) for trial_id in study.trial_ids}
    moving = set() if names is None else _find_moving(StudyPaths.of(tree.root, *names), trials, tree)
    _check_measurements(study, trials, moving, tree)
    if names is not None:
        spec_hash = checked.metadata.spec_hash if checked is not None and checked.metadata is not None else None
        _check_journals(StudyPaths.of(tree.root, *names), spec_hash, tree)


def _check_metadata(study: StudyFolder, trial_id: int, checked: CheckedStudy | None, tree: _Tree) -> CheckedTrial:
    folder = study.path / str(trial_id)
    tree.list(folder)  # links that lead outside are refused here, before anything is read
    text = tree.read(folder / TRIAL_FILE, MAX_JSON_BYTES)
    if text is None:
        return CheckedTrial()
    trial, faults = check_trial_text(text, trial_id, checked)
    tree.add(folder / TRIAL_FILE, *faults)
    if not trial.covered:
        tree.on_uncovered(folder / TRIAL_FILE)
    return trial


def _check_journals(paths: StudyPaths, spec_hash: str | None, tree: _Tree) -> None:
    """Check the owners of journals. A torn end is normal for a journal."""
    for entry in tree.list(paths.working) if tree.has(paths.working) else ():
        trial_id = journal_number(entry.name)
        text = None if trial_id is None or entry.is_dir else tree.read(paths.working / entry.name, MAX_CSV_BYTES)
        if trial_id is None or text is None:
            continue
        owner = decode_journal(text).owner
        expected = JournalOwner(paths.workload, paths.batch_size, trial_id, spec_hash)
        if owner is not None and not expected.is_named_by(owner):
            tree.add(paths.journal(trial_id), Fault(1, "foreign-journal", f"that of {one_line(owner)}"))


def _find_moving(paths: StudyPaths, trials: Iterable[int], tree: _Tree) -> set[int]:
    """Return the trials whose new files are being moved into place one by one, where folders cannot be exchanged.

    Until the last file is moved, or the next writer has finished the work of a dead one, the measurements are newer
    than the checksum beside them.
    """
    return {trial_id for trial_id in trials if tree.has(paths.ready(trial_id))}


def _check_measurements(
    study: StudyFolder, trials: dict[int, CheckedTrial], moving: Collection[int], tree: _Tree
) -> None:
    paths = {trial_id: study.path / str(trial_id) / MEASUREMENTS_FILE for trial_id in trials}
    headers: dict[int, bytes] = {}

    def files() -> Iterator[tuple[int, int, bytes]]:
        for trial_id, path in paths.items():
            text = tree.read(path, MAX_CSV_BYTES)
            if text is None:
                continue
            if text.startswith(BYTE_ORDER_MARK):
                tree.add(path, Fault(1, "byte-order-mark", "a byte order mark"))
            header = text[:MAX_LINE_BYTES].removeprefix(BYTE_ORDER_MARK).partition(b"\n")[0]
            headers[trial_id] = header.removesuffix(b"\r")
            recorded = None if trial_id in moving else trials[trial_id].measurements_sha256
            changed = recorded and checksum_fault(recorded, measurements_checksum(text))
            if changed:
                tree.add(path, changed)
            yield 0, trial_id, text

    faulty: set[int] = set()

    def on_faults(_: int, trial_id: int, faults: list[Fault]) -> None:
        faulty.add(trial_id)
        tree.add(paths[trial_id], *faults)

    measured = set(read_measurement_files(files(), on_faults)["trial_id"].unique())
    for trial_id, fault in header_faults({trial_id: headers[trial_id] for trial_id in sorted(measured)}):
        tree.add(paths[trial_id], fault)
    for trial_id in headers:
        if trials[trial_id].status is Status.COMPLETE and trial_id not in measured | faulty:
            tree.add(paths[trial_id], Fault(None, "no-measurements", "no row"))


def header_faults(headers: dict[int, bytes]) -> Iterator[tuple[int, Fault]]:
    """Yield the trials without a metric that most trials of the study have."""
    parsed = {trial_id: parse_header(line) for trial_id, line in headers.items()}
    sound = {trial_id: frozenset(names) for trial_id, (names, faults) in parsed.items() if not faults}
    if not sound:
        return
    counts = Counter(sound.values())
    usual = max(counts, key=lambda names: (counts[names], len(names), sorted(names)))
    for trial_id, names in sound.items():
        if usual - names:
            yield trial_id, Fault(1, "missing-column", f"no {one_line(', '.join(sorted(usual - names)))}")
