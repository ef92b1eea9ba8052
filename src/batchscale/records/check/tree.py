"""Check a records tree against the format: every violation, with its path and line, not only the first.

What a running writer keeps under ``.batchscale`` is no part of the format; only whose journals are there is looked at,
because they become records. nan, inf and empty
cells are legal values of a metric whatever the trial's status: they are how a trial diverged, or what was not measured.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import RecordsError, one_line
from batchscale.records.check.texts import CheckedStudy, CheckedTrial, check_study_text, check_trial_text
from batchscale.records.filesystem import REAL, Entry, FileSystem, FileTooLargeError, NotAFileError
from batchscale.records.model import Status
from batchscale.records.rules import ALL_RULES, UNREADABLE_RULES, Fault
from batchscale.records.tree.bulk import read_measurement_files
from batchscale.records.tree.checksum import checksum_fault, measurements_checksum, recorded_checksum
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
from batchscale.records.tree.measurements import BYTE_ORDER_MARK, parse_header
from batchscale.records.tree.recovery import journal_number


@dataclass(frozen=True)
class Violation:
    """One thing in a tree that the format does not allow."""

    path: Path
    line: int | None
    rule: str
    found: str

    @property
    def is_unreadable(self) -> bool:
        """Whether it kept us from reading something, so that more may be wrong there."""
        return self.rule in UNREADABLE_RULES

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.rule}: {ALL_RULES[self.rule]}; found {self.found}"


def check_tree(path: Path, fs: FileSystem = REAL) -> list[Violation]:
    """Every violation in the tree (or part of a tree) at ``path``, in order of paths and lines.

    Raises:
        RecordsError: there is no directory, or nothing in it that is or should be a study.
    """
    return sorted(
        iter_violations(path, fs), key=lambda violation: (violation.path.parts, violation.line or 0, violation.rule)
    )


def iter_violations(path: Path, fs: FileSystem = REAL) -> Iterator[Violation]:
    """The violations study by study, as they are found."""
    tree = _Tree(path, fs.resolve(path) if fs.exists(path) else path, fs)
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
    """The tree being checked, and the violations found since they were last taken."""

    def __init__(self, root: Path, base: Path, fs: FileSystem) -> None:
        self.root = root
        self.refused: set[Path] = set()
        self._base = base
        self._fs = fs
        self._found: list[Violation] = []

    def refuse(self, error: RefusalError) -> None:
        if error.path not in self.refused:
            self.refused.add(error.path)
            self.add(error.path, Fault(None, error.rule, error.found))

    def add(self, path: Path, *faults: Fault) -> None:
        self._found += [Violation(path, fault.line, fault.rule, fault.found) for fault in faults]

    def take(self) -> list[Violation]:
        found, self._found = self._found, []
        return found

    def list(self, folder: Path) -> list[Entry]:
        return list_folder(self._base, folder, self._fs, self.refuse)

    def has(self, folder: Path) -> bool:
        return self._fs.is_dir(folder)

    def read(self, path: Path, limit: int) -> bytes | None:
        """The bytes, or None and a violation; nothing at all of a link that was refused."""
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
    """Whatever else stands beside studies: the published reader takes every folder there for a batch size."""
    known = {study.path for study in studies}
    for folder in sorted({study.path.parent for study in studies if study.folders}):
        for entry in tree.list(folder):
            path = folder / entry.name
            is_working = folder == tree.root and entry.name == WORKING_FOLDER
            if entry.is_dir and path not in known and not is_working:
                tree.add(path, Fault(None, "folder-name", one_line(repr(entry.name))))
            elif not entry.is_dir and folder_number(entry.name) is not None:
                tree.add(path, Fault(None, "not-a-folder", "a file"))


def _check_study(study: StudyFolder, tree: _Tree) -> None:
    checked: CheckedStudy | None = None
    named = name_study(study.folders)
    if named is None and len(study.folders) >= 4:
        tree.add(study.path, Fault(None, "workload-name", one_line("/".join(study.folders))))
    text = tree.read(study.path / STUDY_FILE, MAX_JSON_BYTES)
    if text is not None:
        batch_size = folder_number(study.folders[-1]) if study.folders else None
        checked, faults = check_study_text(text, named[0] if named else None, batch_size)
        tree.add(study.path / STUDY_FILE, *faults)
    for entry in study.entries:
        number = folder_number(entry.name)
        if entry.is_dir and number is None:
            tree.add(study.path / entry.name, Fault(None, "folder-name", one_line(repr(entry.name))))
        elif not entry.is_dir and number is not None:
            tree.add(study.path / entry.name, Fault(None, "not-a-folder", "a file"))
    trials = {trial_id: _check_metadata(study, trial_id, checked, tree) for trial_id in study.trial_ids}
    moving = set() if named is None else _find_moving(StudyPaths.of(tree.root, *named), trials, tree)
    _check_measurements(study, trials, moving, tree)
    if named is not None:
        spec_hash = checked.metadata.spec_hash if checked is not None and checked.metadata is not None else None
        _check_journals(StudyPaths.of(tree.root, *named), spec_hash, tree)


def _check_metadata(study: StudyFolder, trial_id: int, checked: CheckedStudy | None, tree: _Tree) -> CheckedTrial:
    folder = study.path / str(trial_id)
    tree.list(folder)  # links that lead outside are refused here, before anything is read
    text = tree.read(folder / TRIAL_FILE, MAX_JSON_BYTES)
    if text is None:
        return CheckedTrial()
    trial, faults = check_trial_text(text, trial_id, checked)
    tree.add(folder / TRIAL_FILE, *faults)
    return trial


def _check_journals(paths: StudyPaths, spec_hash: str | None, tree: _Tree) -> None:
    """Whose journals a writer keeps; that they may end torn is their nature."""
    for entry in tree.list(paths.working) if tree.has(paths.working) else ():
        trial_id = journal_number(entry.name)
        text = None if trial_id is None or entry.is_dir else tree.read(paths.working / entry.name, MAX_CSV_BYTES)
        if trial_id is None or text is None:
            continue
        owner = decode_journal(text).owner
        wanted = JournalOwner(paths.workload, paths.batch_size, trial_id, spec_hash)
        if owner is not None and not wanted.is_named_by(owner):
            tree.add(paths.journal(trial_id), Fault(1, "foreign-journal", f"that of {one_line(owner)}"))


def _find_moving(paths: StudyPaths, trials: Iterable[int], tree: _Tree) -> set[int]:
    """The trials whose new files are being moved into place one by one, where folders cannot be exchanged.

    Until the last is there, or the next writer has finished a dead one's work, the measurements are newer than the
    checksum beside them.
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
            recorded = None if trial_id in moving else recorded_checksum(trials[trial_id].metadata)
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
    """Trials without a metric that most trials of the study have."""
    parsed = {trial_id: parse_header(line) for trial_id, line in headers.items()}
    sound = {trial_id: frozenset(names) for trial_id, (names, faults) in parsed.items() if not faults}
    if not sound:
        return
    counts = Counter(sound.values())
    usual = max(counts, key=lambda names: (counts[names], len(names), sorted(names)))
    for trial_id, names in sound.items():
        if usual - names:
            yield trial_id, Fault(1, "missing-column", f"no {one_line(', '.join(sorted(usual - names)))}")
