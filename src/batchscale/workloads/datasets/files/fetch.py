"""``batchscale data get``: a data set's files, from mirrors or from the user's own, verified, whole or not at all.

Everything is gathered in a hidden folder beside the final one and appears there by one rename. Imports no jax.
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
from batchscale.workloads.datasets.files.archives import extract_all, iter_members
from batchscale.workloads.datasets.files.download import PATIENCE, DownloadProgress, Patience, download
from batchscale.workloads.datasets.files.locations import default_data_dir
from batchscale.workloads.datasets.files.origin import Download, OfficialFile, Origin
from batchscale.workloads.datasets.files.verify import check_content, check_file

UNPACKED_LIMIT = 2**40
_DOWNLOAD_SLACK = 2**20


def _silent(name: str) -> DownloadProgress:  # noqa: ARG001
    return lambda done, total: None  # noqa: ARG005


@dataclass(frozen=True)
class FileFetch:
    """What to get and how: ``urls`` replace the mirrors, ``progress`` gives a listener for each file's name."""

    origin: Origin
    data_dir: Path = field(default_factory=default_data_dir)
    urls: Sequence[str] = ()
    patience: Patience = PATIENCE
    progress: Callable[[str], DownloadProgress] = _silent


def fetch_dataset(fetch: FileFetch) -> Path:
    """Download, verify and put in place the files of a data set; returns their folder.

    A download that was cut continues at the next call. Files of the final folder appear only when all are right.
    """
    origin = fetch.origin
    if not origin.downloads and not fetch.urls:
        raise DataError(f"Data set {origin.folder!r} cannot be downloaded by a program: {origin.instruction}.")
    if len(origin.downloads) > 1 and any(not url.endswith("/") for url in fetch.urls):
        names = ", ".join(item.name for item in origin.downloads)
        raise DataError(f"--url must end in '/', for {origin.folder!r} has several files ({names}).")
    by_hand = (Download(url.rsplit("/", 1)[-1], (), unpack=True) for url in fetch.urls[:1])
    with staging(fetch.data_dir, origin.folder) as (parts, stage):
        for item in origin.downloads or by_hand:
            _fetch_one(fetch, item, parts, stage)
        return publish(stage, fetch.data_dir / origin.folder)


def _fetch_one(fetch: FileFetch, item: Download, parts: Path, stage: Path) -> None:
    if item.contents and all(_is_official(stage / _kept_name(item, file), file) for file in item.contents):
        return  # finished by an earlier call that was cut later
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
        part.unlink()  # the check took the files out
    else:
        part.replace(stage / item.name)


def _check(item: Download, stage: Path, path: Path) -> None:
    """Raise DataError unless the download is right; of an archive with known files, these are in ``stage`` then."""
    if item.sha256 is not None and item.num_bytes is not None:
        with path.open("rb") as file:
            check_content(item.name, file, OfficialFile(item.name, item.num_bytes, item.sha256))
    if len(item.contents) == 1:
        check_file(path, item.contents[0])
    elif item.contents:
        with _named(path, item.name) as archive:
            take_official(archive, item.contents, stage)


def _unpack(part: Path, name: str, unpacking: Path, stage: Path) -> None:
    shutil.rmtree(unpacking, ignore_errors=True)
    with _named(part, name) as archive:
        extract_all(archive, unpacking, UNPACKED_LIMIT)
    for path in unpacking.iterdir():
        path.replace(stage / path.name)
    part.unlink()


@contextmanager
def _named(part: Path, name: str) -> Iterator[Path]:
    """A part under its proper name for a while: readers of archives go by the ending."""
    named = part.with_name(name)
    part.replace(named)
    try:
        yield named
    finally:
        named.replace(part)


def _kept_name(item: Download, file: OfficialFile) -> str:
    return item.name if len(item.contents) == 1 else file.name


def _is_official(path: Path, file: OfficialFile) -> bool:
    try:
        check_file(path, file)
    except (DataError, FileNotFoundError):
        return False
    return True


def take_official(archive: Path, wanted: Sequence[OfficialFile], stage: Path) -> None:
    """Copy the official files out of an archive, by base name, each verified on the way.

    Raises:
        DataError: One is missing or is not the official file.
    """
    left = {file.name: file for file in wanted}
    for name, content in iter_members(archive):
        official = left.pop(Path(name).name, None)
        if official is not None:
            with (stage / official.name).open("wb") as out:
                check_content(f"{archive.name}: {one_line(name)}", content, official, out)
    if left:
        raise DataError(f"{archive.name} must hold {', '.join(left)}: not found in it")


@contextmanager
def staging(data_dir: Path, folder: str) -> Iterator[tuple[Path, Path]]:
    """A folder for parts and one for finished files, both kept if the work is cut; one process at a time."""
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
        raise DataError(f"Another process is getting {folder!r} into {data_dir}: wait for it to end.") from None
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
