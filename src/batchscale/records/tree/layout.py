"""The paths of a records tree: names of folders and files, of records and of working files.

The published reader parses the name of every folder of a workload and of a study as a whole number. So nothing else may
ever be there, not for a moment: all working files live under one ``.batchscale`` folder at the root of the tree.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import RecordsError, SpecError, one_line
from batchscale.spec.workload_name import WorkloadName

STUDY_FILE = "study.json"
TRIAL_FILE = "metadata.json"
MEASUREMENTS_FILE = "measurements.csv"
WORKING_FOLDER = ".batchscale"
CHECKPOINTS = "checkpoints"

MAX_JSON_BYTES = 16 * 2**20
MAX_CSV_BYTES = 512 * 2**20
MAX_LINE_BYTES = 2**20
MAX_DEPTH = 11  # up to 8 folders of the data set's name, model, optimizer, batch size

_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")


@dataclass(frozen=True)
class RunPaths:
    """The working files of a run in the records tree at ``root``. None of them is a record."""

    root: Path

    @property
    def working(self) -> Path:
        """The folder of all working files."""
        return self.root / WORKING_FOLDER

    @property
    def lock(self) -> Path:
        """The file that the one run writing here keeps locked."""
        return self.working / "run.lock"

    @property
    def status(self) -> Path:
        """The latest status of the run."""
        return self.working / "status.json"

    @property
    def experiment(self) -> Path:
        """The experiment that the folder belongs to."""
        return self.working / "experiment.json"

    @property
    def checkpoints(self) -> Path:
        """The states of trials, a folder for each batch size."""
        return self.working / CHECKPOINTS

    @property
    def exchange(self) -> Path:
        """The folder in which a run and its workers on other machines exchange files."""
        return self.working / "exchange"

    @property
    def tracking(self) -> Path:
        """The folder of what was mirrored to other tools so far."""
        return self.working / "tracking"

    @property
    def logs(self) -> Path:
        """The output of worker processes."""
        return self.working / "logs"


@dataclass(frozen=True)
class StudyPaths:
    """The folders of one study: ``folder`` for readers, ``working`` for its writer."""

    root: Path
    workload: WorkloadName
    batch_size: int
    folder: Path
    working: Path

    @classmethod
    def of(cls, root: Path, workload: WorkloadName, batch_size: int) -> "StudyPaths":
        """Return the folders of a study in the tree at ``root``."""
        if batch_size < 1:
            raise RecordsError(f"A batch size is a whole number of at least 1. Found {batch_size}.")
        below = Path(*workload.dataset.split("/"), workload.model, workload.optimizer, str(batch_size))
        return cls(root, workload, batch_size, root / below, root / WORKING_FOLDER / "studies" / below)

    @property
    def study_file(self) -> Path:
        """The study's ``study.json``."""
        return self.folder / STUDY_FILE

    @property
    def lock(self) -> Path:
        """The file that the one writer keeps locked."""
        return self.working / "lock"

    @property
    def checkpoints(self) -> Path:
        """The states of trials that are trained one by one, outside of a run."""
        return self.working / CHECKPOINTS

    def trial(self, trial_id: int) -> Path:
        """The folder of a committed trial."""
        return self.folder / str(trial_id)

    def journal(self, trial_id: int) -> Path:
        """The measurements of a running trial."""
        return self.working / f"journal-{trial_id}"

    def chosen(self, trial_id: int) -> Path:
        """The metaparameters and the seed of a running trial that were chosen by hand."""
        return self.working / f"chosen-{trial_id}.json"

    def staged(self, trial_id: int) -> Path:
        """The folder in which a trial is prepared, and in which an exchanged one waits to be removed."""
        return self.working / f"new-{trial_id}"

    def ready(self, trial_id: int) -> Path:
        """A finished folder whose files are being moved, where folders cannot be exchanged."""
        return self.working / f"ready-{trial_id}"


def name_study(folders: tuple[str, ...]) -> tuple[WorkloadName, int] | None:
    """Return the workload and batch size named by a study's folders, from the tree's root; None if they name none."""
    batch_size = folder_number(folders[-1]) if 4 <= len(folders) <= MAX_DEPTH else None
    if not batch_size:
        return None
    try:
        return WorkloadName("/".join(folders[:-3]), folders[-3], folders[-2]), batch_size
    except SpecError:
        return None


def folder_number(name: str) -> int | None:
    """Return the whole number that a folder is named by, or None. No signs and no leading zeros: names are unique.

    >>> folder_number("64"), folder_number("064"), folder_number("trial")
    (64, None, None)
    """
    return int(name) if _NUMBER.fullmatch(name) else None


def require_directory(path: Path) -> None:
    """Refuse a path that is no directory."""
    if not path.is_dir():
        kind = "a file" if path.exists() else "nothing"
        raise RecordsError(f"A records tree is a directory. Found {kind} at {one_line(path, 500)}.")
