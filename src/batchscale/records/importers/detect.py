"""Recognise what a path holds: records, or the files of another tool."""

import importlib
from pathlib import Path

from batchscale.errors import RecordsError, one_line
from batchscale.records.importers.source import Importer
from batchscale.records.importers.sqlite import is_sqlite
from batchscale.records.tree.folders import iter_studies
from batchscale.records.tree.layout import STUDY_FILE

IMPORTERS = ("optuna", "mlflow", "trackio", "tensorboard", "wandb", "table")
"""The modules of importers, in the order in which they are asked."""

_MODULES = {"table": "tables", "wandb": "wandb_log"}
_PICKLES = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))


def load_importer(kind: str) -> Importer:
    """Return the importer of a kind.

    Raises:
        RecordsError: there is none.
    """
    if kind not in IMPORTERS:
        raise RecordsError(f"--from must be one of {', '.join(IMPORTERS)}. Found '{one_line(kind)}'.")
    module = importlib.import_module(f"batchscale.records.importers.{_MODULES.get(kind, kind)}")
    importer = module.IMPORTER
    assert isinstance(importer, Importer)
    return importer


def find_importer(path: Path) -> Importer | None:
    """Return the importer that recognises a path; None for records, and for paths that no importer recognises.

    Raises:
        RecordsError: the path holds something that must not or cannot be read, such as a pickle.
    """
    if path.is_dir() and _has_studies(path):
        return None
    if path.is_file():
        _refuse_unreadable(path)
    if not path.exists():
        return None
    importers = [load_importer(kind) for kind in IMPORTERS]
    importer = next((importer for importer in importers if importer.matches(path)), None)
    titles = "; ".join(each.title for each in importers)
    if importer is None and path.is_dir():
        raise RecordsError(
            f"{one_line(path, 300)}: a folder must be a records tree (DATASET/MODEL/OPTIMIZER/BATCH_SIZE/study.json) "
            f"or have runs of another tool. Found no study in it and no such runs. Known: {titles}."
        )
    if importer is None and is_sqlite(path):
        raise RecordsError(
            f"{one_line(path, 300)}: a SQLite database must be that of a known tool. Found other tables. "
            f"Known: {titles}."
        )
    return importer


def _has_studies(folder: Path) -> bool:
    try:
        return any((study.path / STUDY_FILE).exists() for study in iter_studies(folder))
    except RecordsError:  # such as a link that leads out of a folder: other tools' folders may have them
        return False


def _refuse_unreadable(path: Path) -> None:
    where = one_line(path, 300)
    with path.open("rb") as file:
        first = file.read(2)
    if first in _PICKLES:
        raise RecordsError(
            f"{where}: a pickle is never read, because it can run any code. Store the study in a database or a journal "
            "file of Optuna (optuna.copy_study), or export its runs as CSV, and import that."
        )
