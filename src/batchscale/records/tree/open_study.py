"""Open a study for writing: lock it, make its folders and ``study.json``, clean up after a dead writer."""

import os
from collections.abc import Mapping
from pathlib import Path

from batchscale.errors import RecordsError, StudyLockedError, one_line
from batchscale.records.durable import REAL, FileSystem, make_folders, replace_file, storing, sync_chain, write_file
from batchscale.records.metadata.base import OWN_KEY
from batchscale.records.model import StudyRecord, parse_study, study_text
from batchscale.records.tree.committed import STUDY_STAGE, clean_working_folder
from batchscale.records.tree.folders import read_file
from batchscale.records.tree.layout import STUDY_FILE, StudyPaths
from batchscale.records.tree.read import Notice, log_notice
from batchscale.records.tree.writer import StudyWriter


def open_study(root: Path, record: StudyRecord, *, fs: FileSystem = REAL, notice: Notice = log_notice) -> StudyWriter:
    """Return the writer of a study in the tree at ``root``, which is made if need be; use it as a context manager.

    If the study exists, its ``study.json`` stays and is the writer's ``record``. A study of another experiment (another
    ``spec_hash``) is refused; the error lists the differences.

    Raises:
        StudyLockedError: another process is writing this study.
        RecordsError: the study there is damaged or another experiment's.
        StorageError: the file system refuses.
    """
    paths = StudyPaths.of(root, record.workload, record.batch_size)
    text = study_text(record)
    with storing("opening a study", paths.folder):
        _require_inside(fs, root, paths.folder)
        _require_inside(fs, root, paths.working)
        make_folders(fs, paths.working)
        lock = _take_lock(fs, paths)
        try:
            sync_chain(fs, root, paths.working)
            clean_working_folder(fs, paths)
            if fs.exists(paths.study_file):
                record = _read_existing(fs, paths, record)
            else:
                _create_study(fs, paths, text)
            return StudyWriter(paths, record, lock, fs, notice)
        except BaseException:
            fs.close(lock)
            raise


def _require_inside(fs: FileSystem, root: Path, folder: Path) -> None:
    """Refuse to write through a link that leads out of the tree."""
    while not fs.exists(folder) and folder != root:
        folder = folder.parent
    if fs.exists(folder) and not fs.is_dir(folder):
        raise RecordsError(f"{folder}: a records tree and the folders in it are directories. Found a file.")
    if fs.exists(root) and not fs.resolve(folder).is_relative_to(fs.resolve(root)):
        raise RecordsError(f"{folder}: a study is written inside its tree. Found a link to {fs.resolve(folder)}.")


def _take_lock(fs: FileSystem, paths: StudyPaths) -> int:
    if fs.is_dir(paths.lock):
        raise RecordsError(f"{paths.lock}: the lock of a study is a file. Found a folder; remove it.")
    lock = fs.lock(paths.lock)
    if lock is None:
        owner = fs.read(paths.lock, 1000).decode(errors="replace").strip() or "unknown"
        raise StudyLockedError(
            f"{paths.folder}: one process writes a study at a time. Found it locked by process {one_line(owner)}. Wait "
            "for it, or stop it; the lock is free as soon as it ends."
        )
    try:
        fs.stamp(lock, f"{os.getpid()}\n".encode())
    except OSError:
        fs.close(lock)
        raise
    return lock


def _create_study(fs: FileSystem, paths: StudyPaths, text: bytes) -> None:
    """Make the study's folder with its ``study.json`` in one step: readers take every folder there for a study."""
    make_folders(fs, paths.folder.parent)
    sync_chain(fs, paths.root, paths.folder.parent)
    if fs.exists(paths.folder):  # the file was removed: trials may be there, so the folder stays
        replace_file(fs, paths.study_file, paths.working, text)
        return
    stage = paths.working / STUDY_STAGE
    fs.mkdir(stage)
    write_file(fs, stage / STUDY_FILE, text)
    fs.sync_directory(stage)
    fs.replace(stage, paths.folder)
    fs.sync_directory(paths.folder.parent)


def _read_existing(fs: FileSystem, paths: StudyPaths, new: StudyRecord) -> StudyRecord:
    stored = parse_study(read_file(paths.study_file, fs=fs), new.workload, str(paths.study_file))
    if stored.batch_size != new.batch_size:
        raise RecordsError(f"{paths.study_file}: batch_size agrees with the folder. Found {stored.batch_size}.")
    if stored.spec_hash and new.spec_hash and stored.spec_hash != new.spec_hash:
        raise RecordsError(
            f"{paths.folder}: a study belongs to one experiment. Found another one there, with other "
            f"{describe_difference(stored, new)}. Write to another folder, or go back to the experiment as it was."
        )
    return stored


def describe_difference(stored: StudyRecord, new: StudyRecord) -> str:
    """Return the keys in which two studies differ, with both values."""
    before, after = _flatten(stored), _flatten(new)
    keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    parts = [f"{key} ({one_line(before.get(key))} there, {one_line(after.get(key))} wanted)" for key in keys]
    return ", ".join(parts[:8]) + (", …" if len(parts) > 8 else "")


def _flatten(record: StudyRecord) -> dict[str, object]:
    data = record.to_json()
    metadata = data.pop(OWN_KEY, {})
    configs = data.pop("parameter_configs", {})
    flat = {**data, **{f"parameter_configs.{name}": config for name, config in configs.items()}}
    return flat | (
        {f"{OWN_KEY}.{key}": value for key, value in metadata.items()} if isinstance(metadata, Mapping) else {}
    )
