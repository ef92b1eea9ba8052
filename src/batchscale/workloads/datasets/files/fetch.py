"""``batchscale data get``: put a data set's files in place, from mirrors or from the user's own. Imports no jax.

Everything is gathered in a hidden folder beside the final one and appears there by one rename. With ``--from``,
official files are searched by name, verified and copied. Files without known checksums (a folder of images, say) are
accepted if they look like the set: a folder is linked, not copied, for it may be a hundred gigabytes; an archive is
unpacked.
"""

import fcntl
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from batchscale.errors import DataError, one_line
from batchscale.records.durable import sync_path
from batchscale.workloads.datasets.files.archives import extract_all, is_archive, iter_members
from batchscale.workloads.datasets.files.download import PATIENCE, DownloadProgress, Patience, download
from batchscale.workloads.datasets.files.locations import default_data_dir
from batchscale.workloads.datasets.files.official import Download, OfficialFile, Origin, check_content, check_file

UNPACKED_LIMIT = 2**40
_DOWNLOAD_SLACK = 2**20


def _silent(name: str) -> DownloadProgress:  # noqa: ARG001
    return lambda done, total: None  # noqa: ARG005


@dataclass(frozen=True)
class FetchSettings:
    """The settings of a download: ``urls`` replace the mirrors, ``progress`` returns a callback for a file's name."""

    origin: Origin
    data_dir: Path = field(default_factory=default_data_dir)
    urls: Sequence[str] = ()
    patience: Patience = PATIENCE
    progress: Callable[[str], DownloadProgress] = _silent


def fetch_dataset(fetch: FetchSettings) -> Path:
    """Download, verify and put in place the files of a data set; return their folder.

    An interrupted download continues at the next call. The final folder appears only when all files are right.
    """
    origin = fetch.origin
    if not origin.downloads and not fetch.urls:
        raise DataError(f"Data set {origin.folder!r} cannot be downloaded automatically: {origin.instruction}.")
    if len(origin.downloads) > 1 and any(not url.endswith("/") for url in fetch.urls):
        names = ", ".join(item.name for item in origin.downloads)
        raise DataError(f"--url must end in '/': data set {origin.folder!r} has several files ({names}).")
    by_hand = (Download(url.rsplit("/", 1)[-1], (), unpack=True) for url in fetch.urls[:1])
    with staging(fetch.data_dir, origin.folder) as (parts, stage):
        for item in origin.downloads or by_hand:
            _fetch_file(fetch, item, parts, stage)
        return publish(stage, fetch.data_dir / origin.folder)


def _fetch_file(fetch: FetchSettings, item: Download, parts: Path, stage: Path) -> None:
    if item.contents and all(_is_official(stage / _stored_name(item, file), file) for file in item.contents):
        return  # finished by an earlier call that was interrupted later
    mirrors = [url + item.name if url.endswith("/") else url for url in fetch.urls] or item.mirrors
    expected = item.num_bytes or sum(file.num_bytes for file in item.contents)
    part = download(
        mirrors,
        parts,
        partial(_check, item, stage),
        limit=expected + _DOWNLOAD_SLACK if expected else UNPACKED_LIMIT,
        progress=fetch.progress(item.name),
        patience=fetch.patience,
    )
    if item.unpack:
        _unpack(part, item.name, parts / "unpacking", stage)
    elif len(item.contents) > 1:
        part.unlink()  # the check has extracted the files
    else:
        part.replace(stage / item.name)


def _check(item: Download, stage: Path, path: Path) -> None:
    """Raise DataError unless the download is right; the known files of an archive are put into ``stage``."""
    if item.sha256 is not None and item.num_bytes is not None:
        with path.open("rb") as file:
            check_content(item.name, file, OfficialFile(item.name, item.num_bytes, item.sha256))
    if len(item.contents) == 1:
        check_file(path, item.contents[0])
    elif item.contents:
        with _named(path, item.name) as archive:
            extract_official(archive, item.contents, stage)


def _unpack(part: Path, name: str, unpacking: Path, stage: Path) -> None:
    shutil.rmtree(unpacking, ignore_errors=True)
    with _named(part, name) as archive:
        extract_all(archive, unpacking, UNPACKED_LIMIT)
    for path in unpacking.iterdir():
        path.replace(stage / path.name)
    part.unlink()


@contextmanager
def _named(part: Path, name: str) -> Iterator[Path]:
    """Give a part its proper name for a while: readers of archives go by the ending."""
    named = part.with_name(name)
    part.replace(named)
    try:
        yield named
    finally:
        named.replace(part)


def _stored_name(item: Download, file: OfficialFile) -> str:
    return item.name if len(item.contents) == 1 else file.name


def _is_official(path: Path, file: OfficialFile) -> bool:
    try:
        check_file(path, file)
    except (DataError, FileNotFoundError):
        return False
    return True


def extract_official(archive: Path, files: Sequence[OfficialFile], stage: Path) -> None:
    """Copy the official files out of an archive, by base name, each verified on the way.

    Raises:
        DataError: One is missing or is not the official file.
    """
    missing = {file.name: file for file in files}
    for name, content in iter_members(archive):
        official = missing.pop(Path(name).name, None)
        if official is not None:
            with (stage / official.name).open("wb") as out:
                check_content(f"{archive.name}: {one_line(name)}", content, official, out)
    if missing:
        raise DataError(f"{archive.name} must hold {', '.join(missing)}: not found in it")


@contextmanager
def staging(data_dir: Path, folder: str) -> Iterator[tuple[Path, Path]]:
    """Yield a folder for parts and one for finished files; both stay after an interruption. One process at a time."""
    parts = data_dir / ".partial" / folder
    try:
        parts.mkdir(parents=True, exist_ok=True)
        with parts.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            stage = parts / "finished"
            stage.mkdir(exist_ok=True)
            yield parts, stage
            shutil.rmtree(parts)
    except BlockingIOError:
        raise DataError(f"Another process is getting {folder!r} into {data_dir}: wait for it to finish.") from None
    except OSError as error:
        raise DataError(f"Data set {folder!r} cannot be put into {data_dir}: {one_line(error, 300)}.") from error


def publish(stage: Path, target: Path) -> Path:
    """Put the finished files in place: by one rename, or into a folder that is already there, file by file."""
    for path in stage.rglob("*"):
        if path.is_file():
            sync_path(path)
    if not target.exists():
        stage.replace(target)
    else:
        for path in sorted(stage.iterdir()):
            if path.is_dir() and (target / path.name).exists():
                raise DataError(f"{target / path.name} is in the way: move it elsewhere, then run the command again.")
            path.replace(target / path.name)
    sync_path(target)
    sync_path(target.parent)
    return target


def use_files(origin: Origin, path: Path, is_there: Callable[[Path], bool], data_dir: Path) -> tuple[Path, bool]:
    """Put the user's files in place; return their folder, and True if they were verified by checksum.

    Raises:
        DataError: The files do not exist, or are not those that the publisher gave out.
    """
    if not path.exists():
        raise DataError(f"--from must name a folder or an archive. {path} does not exist.")
    target = data_dir / origin.folder
    if target.exists() and target.resolve() == path.resolve():
        raise DataError(f"{path} is already the folder of data set {origin.folder!r}.")
    with staging(data_dir, origin.folder) as (_, stage):
        shutil.rmtree(stage)
        stage.mkdir()
        if origin.contents and _copy_verified(origin.contents, path, stage):
            return publish(stage, target), True
        if path.is_dir():
            return _link(origin, path, is_there, target), False
        if not is_archive(path):
            raise DataError(f"--from must name a folder or an archive (.tar, .tar.gz, .zip, …). Found the file {path}.")
        extract_all(path, stage, UNPACKED_LIMIT)
        return publish(_root(origin, stage, path, is_there), target), False


def _copy_verified(files: tuple[OfficialFile, ...], path: Path, stage: Path) -> bool:
    """Copy the official files; False if none of them exists by name."""
    if path.is_file():
        if not is_archive(path):
            return False
        try:
            extract_official(path, files, stage)
        except DataError as error:
            if "not found in it" in str(error) and not any(stage.iterdir()):
                return False
            raise
        return True
    places = {file: _find(path, file.name) for file in files}
    if not any(places.values()):
        return False
    if missing := [file.name for file, place in places.items() if place is None]:
        raise DataError(f"{path} must hold {', '.join(file.name for file in files)}. Missing: {', '.join(missing)}.")
    for file, place in places.items():
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
        raise DataError(f"{target} already exists: remove it first to replace it by {path}.")
    target.symlink_to(path.resolve(), target_is_directory=True)
    return target


def _root(origin: Origin, stage: Path, path: Path, is_there: Callable[[Path], bool]) -> Path:
    """Return the folder of the data set in an unpacked archive: the top, or one folder below it."""
    for place in (stage, *sorted(child for child in stage.iterdir() if child.is_dir())):
        if is_there(place):
            return place
    raise DataError(f"{path} does not hold data set {origin.folder!r}: {origin.instruction}.")
