"""Experiment files of the user's own: those of the one folder that the server was started with."""

import hashlib
from pathlib import Path

from batchscale.web.records_folders import visible
from batchscale.web.refusals import RefusedError

MOST = 500


def list_own_files(folder: Path | None) -> dict[str, tuple[str, Path]]:
    """(name, path) of each experiment file by its id; regular files only, no links."""
    if folder is None:
        return {}
    paths = [path for path in sorted(folder.glob("*.toml")) if path.is_file() and not path.is_symlink()]
    return {
        hashlib.sha256(path.name.encode()).hexdigest()[:16]: (visible(path.name, 80), path) for path in paths[:MOST]
    }


def find_own_file(folder: Path | None, file_id: str) -> Path:
    """The file of an id."""
    found = list_own_files(folder).get(file_id)
    if found is None:
        raise RefusedError(404, "There is no such experiment file in the folder that the server was started with.")
    return found[1]
