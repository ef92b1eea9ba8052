"""Where a run keeps its working files beside the records: one name for each, in one place."""

from dataclasses import dataclass
from pathlib import Path

from batchscale.records.tree.layout import CHECKPOINTS, WORKING_FOLDER


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
        """The file whose lock the one run holds that is writing here."""
        return self.working / "run.lock"

    @property
    def status(self) -> Path:
        """How the run stood when it was last heard from."""
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
        """Where the driver and its workers on other machines meet."""
        return self.working / "exchange"

    @property
    def logs(self) -> Path:
        """What worker processes print."""
        return self.working / "logs"
