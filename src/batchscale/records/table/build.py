"""From the parts of an import to the finished table: names, studies, trials, and one sorted file per workload."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import polars as pl

from batchscale.errors import RecordsError
from batchscale.records.frames import STUDY_COLUMNS, TRIAL_SCHEMA, WORKLOAD_COLUMNS
from batchscale.records.metadata.columns import METADATA
from batchscale.records.model import StudyRecord, parse_study
from batchscale.records.precision import widen
from batchscale.records.rules import Fault
from batchscale.records.table.files import ORIGINAL_SCHEMA, ORIGINALS, STUDIES, TRIALS, measurements_path
from batchscale.records.table.parts import KEY_SCHEMA, PARAMETER_PREFIX, Part, check_width
from batchscale.records.tree.bulk import CsvBlock, RowRun, join_blocks
from batchscale.records.tree.layout import MEASUREMENTS_FILE, STUDY_FILE, TRIAL_FILE
from batchscale.records.tree.measurements import checksum_fault
from batchscale.records.tree.read import make_studies_frame
from batchscale.spec.workload_name import WorkloadName

GROUPS = ("imagenet_subsets", "mnist_subsets", "solution_quality")  # group folders of the published archive
ROW_GROUP = 131_072
TRIAL_ROW_GROUP = 4_096
IN_MEMORY_BYTES = 400 * 2**20  # a workload larger than this is put together a few studies at a time

_KEYS = ("folder", "batch_size", "trial_id")

OnProblem = Callable[[str], None]


@dataclass(frozen=True)
class TableFrames:
    """Everything of a table but the measurements."""

    names: dict[str, WorkloadName]  # by folder of the source
    studies: pl.DataFrame
    trials: pl.DataFrame  # of the parts' schema, sound ones only
    originals: pl.DataFrame
    problems: list[str]


def name_workloads(folders: Sequence[str], has_root: bool) -> dict[str, WorkloadName]:
    """Return the workload that each folder of the source names.

    An archive usually holds one folder with everything in it, which is no part of the names; a published group of
    workloads is.

    >>> name_workloads(["batch_science/mnist/fc_1024/sgd"], has_root=True)
    {'batch_science/mnist/fc_1024/sgd': WorkloadName(dataset='mnist', model='fc_1024', optimizer='sgd')}
    """
    tops = {folder.split("/")[0] for folder in folders}
    deep = all(folder.count("/") >= 3 for folder in folders)
    root = f"{tops.pop()}/" if has_root and deep and len(tops) == 1 and not tops & set(GROUPS) else ""
    return {folder: WorkloadName.parse(folder.removeprefix(root)) for folder in folders}


def gather_frames(parts: Sequence[Part], has_root: bool, on_problem: OnProblem) -> TableFrames:
    """Return the studies and trials of all parts; ``on_problem`` receives each inconsistency, and may raise."""
    problems: list[str] = []

    def report(text: str) -> None:
        on_problem(text)
        problems.append(text)

    texts = {(folder, size): text for part in parts for folder, size, text in part.studies}
    trials = pl.concat([part.trials for part in parts], how="diagonal")
    files = pl.concat([part.files for part in parts])
    check_width(trials.columns, "metaparameters")
    folders = sorted({folder for folder, _ in texts} | set(trials["folder"]) | set(files["folder"]))
    names = name_workloads(folders, has_root)
    records = _parse_studies(texts, names, report)
    sound = _sound_trials(trials, files, records, [key for part in parts for key in part.dropped], report)
    studies = make_studies_frame(records.values())
    return TableFrames(names, studies, sound, _originals(sound, texts, records), sorted(problems))


def _parse_studies(
    texts: dict[tuple[str, int], str], names: dict[str, WorkloadName], report: OnProblem
) -> dict[tuple[str, int], StudyRecord]:
    records = {}
    for (folder, size), text in sorted(texts.items()):
        where = _study_path(folder, size)
        try:
            record = parse_study(text.encode(), names[folder], where)
            if record.batch_size != size:
                raise RecordsError(f"{where}: batch_size agrees with the folder. Found {record.batch_size}.")
        except RecordsError as error:
            report(str(error))
            continue
        records[folder, size] = record
    return records


def _sound_trials(
    trials: pl.DataFrame,
    files: pl.DataFrame,
    records: dict[tuple[str, int], StudyRecord],
    dropped: list[tuple[str, int, int]],
    report: OnProblem,
) -> pl.DataFrame:
    """Return the trials with all their files and a study, sorted; each other one is a problem."""
    unsound = pl.DataFrame(dropped, schema=KEY_SCHEMA, orient="row").unique()
    alone = trials.join(files, on=_KEYS, how="anti").join(unsound, on=_KEYS, how="anti")
    for folder, size, trial in alone.select(_KEYS).sort(_KEYS).rows():
        report(f"{folder}/{size}/{trial}/{MEASUREMENTS_FILE}: a trial has its measurements. Found none.")
    orphans = files.join(trials, on=_KEYS, how="anti").join(unsound, on=_KEYS, how="anti")
    for folder, size, trial in orphans.select(_KEYS).sort(_KEYS).rows():
        report(f"{folder}/{size}/{trial}/{TRIAL_FILE}: a trial has its metadata. Found none.")
    changed = list(_changed(trials.join(files, on=_KEYS)))
    for folder, size, trial, fault in changed:
        report(f"{folder}/{size}/{trial}/{MEASUREMENTS_FILE}: {fault}")
    unsound = unsound.vstack(pl.DataFrame([key[:3] for key in changed], schema=KEY_SCHEMA, orient="row"))
    keys = pl.DataFrame(list(records), schema={"folder": pl.String, "batch_size": pl.Int64}, orient="row")
    without_study = (
        trials.join(keys, on=["folder", "batch_size"], how="anti")
        .select("folder", "batch_size")
        .unique()
        .sort(pl.all())
    )
    for folder, size in without_study.rows():
        report(f"{_study_path(folder, size)}: a study has a sound study.json. Its trials cannot be kept.")
    sound = trials.join(files, on=_KEYS).join(unsound, on=_KEYS, how="anti")
    return sound.join(keys, on=["folder", "batch_size"], how="semi").sort(_KEYS)


def _changed(trials: pl.DataFrame) -> Iterator[tuple[str, int, int, Fault]]:
    """Yield the trials whose measurements differ from the recorded ones."""
    recorded = pl.col(METADATA).struct.field("measurements_sha256").alias("recorded")
    for *key, checksum, actual in trials.select(*_KEYS, recorded, "sha256").drop_nulls().sort(_KEYS).rows():
        fault = checksum_fault(checksum, actual)
        if fault is not None:
            yield *key, fault


def _originals(
    trials: pl.DataFrame, texts: dict[tuple[str, int], str], records: dict[tuple[str, int], StudyRecord]
) -> pl.DataFrame:
    studies = [(folder, size, None, texts[folder, size], None) for folder, size in sorted(records)]
    schema = {**KEY_SCHEMA, "text": pl.String, "header": pl.String}
    return pl.concat([pl.DataFrame(studies, schema=schema, orient="row"), trials.select(list(schema))])


def write_small_tables(frames: TableFrames, target: Path) -> None:
    """Write the tables of studies and trials, and the original texts."""
    names = pl.DataFrame(
        [(folder, name.dataset, name.model, name.optimizer) for folder, name in frames.names.items()],
        schema=["folder", *WORKLOAD_COLUMNS],
        orient="row",
    )
    parameters = sorted(name for name in frames.trials.columns if name.startswith(PARAMETER_PREFIX))
    trials = (
        frames.trials.join(names, on="folder")
        .select(*TRIAL_SCHEMA, *(pl.col(name).alias(name.removeprefix(PARAMETER_PREFIX)) for name in parameters))
        .sort(*STUDY_COLUMNS, "trial_id")
    )
    used = [name for name in trials.columns if name in TRIAL_SCHEMA or trials[name].null_count() < trials.height]
    originals = frames.originals.join(names, on="folder").select(list(ORIGINAL_SCHEMA))
    for frame, file in ((frames.studies, STUDIES), (trials.select(used), TRIALS)):
        frame.write_parquet(target / file, compression="zstd", row_group_size=TRIAL_ROW_GROUP)
    originals.sort(*STUDY_COLUMNS, "trial_id", nulls_last=False).write_parquet(
        target / ORIGINALS, compression="zstd", row_group_size=TRIAL_ROW_GROUP
    )


@dataclass(frozen=True)
class MeasuredWorkload:
    """The file of a workload's measurements: its number of rows and the types of its metrics."""

    rows: int
    kinds: Mapping[str, pl.DataType]


def write_measurements(frames: TableFrames, folder: str, parts: Sequence[Part], target: Path) -> MeasuredWorkload:
    """Write the measurements of one workload to one file, sorted."""
    files = frames.trials.select("folder", "batch_size", "trial_id", "rows", "header")
    valid = files.filter(pl.col("folder") == folder).sort("batch_size", "trial_id").rows()
    columns = _column_order(list(dict.fromkeys(header for *_, header in valid)))
    check_width(columns, f"metrics of {folder}")
    used = [part for part in parts if part.has(folder)]
    kinds = _kinds([part.schema(folder) for part in used], columns)
    path = target / measurements_path(frames.names[folder])
    path.parent.mkdir(parents=True, exist_ok=True)
    runs = [(size, trial, rows) for _, size, trial, rows, _ in valid]
    groups = _groups(runs, sum(8 if kind == pl.Float64 else 4 for kind in kinds.values()) + 24)
    if len(groups) == 1:
        _ordered(used, folder, kinds, groups[0]).write_parquet(
            path, compression="zstd", compression_level=1, row_group_size=ROW_GROUP
        )
    else:
        _write_in_groups(used, folder, kinds, groups, path)
    return MeasuredWorkload(sum(rows for *_, rows in runs), kinds)


def _write_in_groups(
    parts: Sequence[Part], folder: str, kinds: dict[str, pl.DataType], groups: list[set[tuple[int, int]]], path: Path
) -> None:
    pieces = []
    for number, trials in enumerate(groups):
        pieces.append(path.with_name(f"{path.name}.{number}"))
        ordered = _ordered(parts, folder, kinds, trials)
        ordered.write_parquet(pieces[-1], compression="lz4", row_group_size=ROW_GROUP)
    pl.scan_parquet(pieces, hive_partitioning=False).sink_parquet(
        path, compression="zstd", compression_level=1, row_group_size=ROW_GROUP, maintain_order=True
    )
    for piece in pieces:
        piece.unlink()


def _column_order(headers: list[str]) -> list[str]:
    """Return every metric, in the order in which the trials, by batch size and id, first have them."""
    return list(dict.fromkeys(name for header in headers for name in header.split(",")[1:]))


def _kinds(schemas: list[Mapping[str, pl.DataType]], columns: list[str]) -> dict[str, pl.DataType]:
    kinds: dict[str, pl.DataType] = dict.fromkeys(columns, pl.Float32())
    for schema in schemas:
        for name, kind in schema.items():
            if name in kinds and kind == pl.Float64:
                kinds[name] = pl.Float64()
    return kinds


def _groups(runs: Sequence[RowRun], row_bytes: int) -> list[set[tuple[int, int]]]:
    """Return the trials, sorted by batch size, in groups of studies whose measurements fit into memory together."""
    counts = Counter[int]()
    for size, _, rows in runs:
        counts[size] += rows
    totals = dict(zip(counts, accumulate(counts.values()), strict=True))
    groups: dict[int, set[tuple[int, int]]] = {}
    for size, trial, _ in runs:
        groups.setdefault(totals[size] * row_bytes // IN_MEMORY_BYTES, set()).add((size, trial))
    return list(groups.values()) or [set()]


def _ordered(
    parts: Sequence[Part], folder: str, kinds: dict[str, pl.DataType], trials: set[tuple[int, int]]
) -> pl.DataFrame:
    """Return the rows of trials by batch size, trial id and step: whole trials are moved, each is already sorted."""
    blocks = [_conform(part.block(folder).ordered(trials), kinds) for part in parts]
    return join_blocks(blocks or [_conform(join_blocks([]), kinds)]).labelled()


def _conform(block: CsvBlock, kinds: dict[str, pl.DataType]) -> CsvBlock:
    frame = block.frame
    columns = [frame["step"]]
    for name, kind in kinds.items():
        if name not in frame.columns:
            columns.append(pl.Series(name, [None], dtype=kind).new_from_index(0, frame.height))
        elif frame.schema[name] != kind:
            columns.append(widen(frame[name]))
        else:
            columns.append(frame[name])
    return CsvBlock(pl.DataFrame(columns), block.runs)


def _study_path(folder: str, batch_size: int) -> str:
    return f"{folder}/{batch_size}/{STUDY_FILE}"


def describe_statuses(trials: pl.DataFrame) -> dict[str, int]:
    """Return the number of trials by status."""
    return dict(trials.group_by("status").len().sort("status").rows())
