"""``batchscale data get NAME --from PATH``: files that the user already has. Imports no jax.

Official files are looked for by name, verified and copied. What has no known checksums (a folder of images, say) is
accepted if it looks like the set: a folder is linked, not copied, for it may be a hundred gigabytes; an archive is
unpacked.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from batchscale.errors import DataError
from batchscale.workloads.datasets.files.archives import extract_all, is_archive
from batchscale.workloads.datasets.files.fetch import UNPACKED_LIMIT, publish, staging, take_official
from batchscale.workloads.datasets.files.origin import OfficialFile, Origin
from batchscale.workloads.datasets.files.verify import check_file


def take_files(origin: Origin, path: Path, is_there: Callable[[Path], bool], data_dir: Path) -> tuple[Path, bool]:
    """Put the user's files in place; returns their folder and whether they were verified by checksum.

    Raises:
        DataError: The files are not there, or are not what the data set's publisher gave out.
    """
    if not path.exists():
        raise DataError(f"--from must name a folder or an archive. {path} does not exist.")
    target = data_dir / origin.folder
    if target.exists() and target.resolve() == path.resolve():
        raise DataError(f"{path} is already the folder of data set {origin.folder!r}.")
    with staging(data_dir, origin.folder) as (_, stage):
        shutil.rmtree(stage)
        stage.mkdir()
        if origin.contents and _take_verified(origin.contents, path, stage):
            return publish(stage, target), True
        if path.is_dir():
            return _link(origin, path, is_there, target), False
        if not is_archive(path):
            raise DataError(f"--from must name a folder or an archive (.tar, .tar.gz, .zip, …). Found the file {path}.")
        extract_all(path, stage, UNPACKED_LIMIT)
        return publish(_root(origin, stage, path, is_there), target), False


def _take_verified(wanted: tuple[OfficialFile, ...], path: Path, stage: Path) -> bool:
    """Whether official files were found (and are now copied); False if none of them is there by name."""
    if path.is_file():
        if not is_archive(path):
            return False
        try:
            take_official(path, wanted, stage)
        except DataError as error:
            if "not found in it" in str(error) and not any(stage.iterdir()):
                return False
            raise
        return True
    found = {file: _find(path, file.name) for file in wanted}
    if not any(found.values()):
        return False
    if missing := [file.name for file, place in found.items() if place is None]:
        raise DataError(f"{path} must hold {', '.join(file.name for file in wanted)}. Missing: {', '.join(missing)}.")
    for file, place in found.items():
        assert place is not None
        check_file(place, file)
        shutil.copyfile(place, stage / place.name)
    return True


def _find(folder: Path, name: str) -> Path | None:
    places = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    candidates = (place / f"{name}{end}" for place in places for end in ("", ".gz"))
    return next((path for path in candidates if path.is_file()), None)


def _link(origin: Origin, path: Path, is_there: Callable[[Path], bool], target: Path) -> Path:
    if not is_there(path):
        raise DataError(f"{path} does not look like data set {origin.folder!r}: {origin.instruction}.")
    if target.exists() or target.is_symlink():
        raise DataError(f"{target} is already there: remove it first if {path} is to take its place.")
    target.symlink_to(path.resolve(), target_is_directory=True)
    return target


def _root(origin: Origin, stage: Path, path: Path, is_there: Callable[[Path], bool]) -> Path:
    """The folder inside an unpacked archive that is the data set: the top, or one folder below it."""
    for place in (stage, *sorted(child for child in stage.iterdir() if child.is_dir())):
        if is_there(place):
            return place
    raise DataError(f"{path} does not hold data set {origin.folder!r}: {origin.instruction}.")
