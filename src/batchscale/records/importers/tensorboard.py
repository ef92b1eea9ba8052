"""Event files of TensorBoard: a run per folder, metaparameters from the hparams plug-in or the folder's name."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from batchscale.errors import RecordsError, one_line
from batchscale.formatting import count_text
from batchscale.records.importers.event_files import EventFile, is_event_file, read_event_file
from batchscale.records.importers.names import split_of_folder
from batchscale.records.importers.source import (
    STEP,
    ImportedValue,
    Importer,
    ReadOptions,
    RunSeries,
    RunSource,
    SourceRun,
    to_value,
)
from batchscale.records.importers.tables import values_in_name
from batchscale.records.model import Status

MAX_FILES = 100_000
_STATUSES = {1: Status.COMPLETE, 2: Status.INCOMPLETE, 3: Status.INCOMPLETE}


@dataclass
class _Run:
    series: RunSeries = field(default_factory=RunSeries)
    hparams: dict[str, ImportedValue] = field(default_factory=dict)
    session_status: int | None = None
    points_per_metric: dict[str, int] = field(default_factory=dict)

    @property
    def is_summary(self) -> bool:
        """True if it only has metaparameters and final values, as the folders that ``add_hparams`` makes."""
        return bool(self.hparams) and max(self.points_per_metric.values(), default=0) <= 1

    def add(self, file: EventFile, split: str | None) -> None:
        """Add the content of a file; metrics of a folder that is named by a split get it as a prefix."""
        for tag, step, value in file.scalars:
            name = one_line(f"{split}/{tag}" if split else tag)
            self.series.add(name, step, value)
            self.points_per_metric[name] = self.points_per_metric.get(name, 0) + 1
        for name, item in file.hparams.items():
            checked = to_value(item)
            if checked is not None:
                self.hparams[one_line(name)] = checked
        self.session_status = file.session_status if file.session_status is not None else self.session_status


def _matches(path: Path) -> bool:
    return next(iter(_event_files(path)), None) is not None


def _event_files(path: Path) -> list[Path]:
    """Return the event files at and below a path, in the order of their folders and names."""
    if path.is_file():
        return [path] if is_event_file(path) else []
    files: list[Path] = []
    for where, folders, names in os.walk(path, followlinks=False):
        folders.sort()
        files += [Path(where) / name for name in sorted(names) if is_event_file(Path(where) / name)]
        if len(files) > MAX_FILES:
            raise RecordsError(f"{one_line(path, 300)}: a source must have at most {MAX_FILES:,} event files.")
    return files


def _read(path: Path, options: ReadOptions) -> RunSource:
    runs: dict[Path, _Run] = {}
    damaged = cut_off = 0
    for file in _event_files(path):
        folder = file.parent
        split = split_of_folder(folder.name) if folder != path else None
        try:
            events = read_event_file(file)
        except (OSError, ValueError) as error:
            raise RecordsError(f"{one_line(file, 300)}: the event file cannot be read ({one_line(error)}).") from None
        runs.setdefault(folder.parent if split else folder, _Run()).add(events, split)
        damaged += events.damaged
        cut_off += events.cut_off
    _move_hparams(runs)
    root = path.parent if path.is_file() else path
    sources = [_make_run(folder, root, run, options) for folder, run in runs.items() if run.series.count]
    notices = []
    if cut_off:
        notices.append(f"{count_text(cut_off, 'event file')} cut off or damaged: what was written before is imported.")
    if damaged:
        notices.append(f"{count_text(damaged, 'record')} with a wrong checksum or content left out.")
    return RunSource("tensorboard", path, sources, STEP, notices=tuple(notices))


def _move_hparams(runs: dict[Path, _Run]) -> None:
    """Give metaparameters that stand in a folder of their own to the run above it."""
    for folder in [folder for folder, run in runs.items() if run.is_summary]:
        parent = runs.get(folder.parent)
        if parent is not None and not parent.hparams and not parent.is_summary:
            child = runs.pop(folder)
            parent.hparams, parent.session_status = child.hparams, child.session_status


def _make_run(folder: Path, root: Path, run: _Run, options: ReadOptions) -> SourceRun:
    name = folder.relative_to(root).as_posix() if folder.is_relative_to(root) else folder.name
    name = one_line(folder.name if name == "." else name, 300)
    values: Mapping[str, ImportedValue] = {**values_in_name(name, options.name_pattern), **run.hparams}
    status = _STATUSES.get(run.session_status or 0)
    return SourceRun(name, values, run.series.frame, name=name, status=status)


IMPORTER = Importer("tensorboard", "TensorBoard event files", _matches, _read)
