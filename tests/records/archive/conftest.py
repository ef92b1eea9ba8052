"""Small archives made by hand, and the synthetic archive at scale 1/50, made once for all tests of all processes."""

import fcntl
import io
import json
import os
import tarfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from synthetic_archive import Counts, Scale, write_archive

from batchscale.records.table.import_records import import_records

SCALE = Scale(trials=1 / 50, measurements=1 / 10)


@dataclass(frozen=True)
class Synthetic:
    archive: Path
    counts: Counts
    table: Path


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Synthetic:
    """Made by the first of the processes that run tests; the others wait for it. Nobody writes there afterwards."""
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    root = tmp_path_factory.getbasetemp() if alone else tmp_path_factory.getbasetemp().parent
    folder = root / "synthetic-archive"
    folder.mkdir(exist_ok=True)
    archive, table, counted = folder / "synthetic.tar.bz2", folder / "table", folder / "counts.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not counted.exists():
            counts = write_archive(archive, SCALE, level=1)
            import_records(archive, table)
            counted.write_text(json.dumps(vars(counts)), encoding="utf-8")
    counts = Counts(**json.loads(counted.read_text(encoding="utf-8")))
    counts.trials = Counter(counts.trials)
    return Synthetic(archive, counts, table)


def study_json(workload: str, batch_size: int, **changes: object) -> bytes:
    dataset, model, optimizer = workload.split("/")[-3:]
    rate = {"max_value": 1.0, "min_value": 0.001, "scale": "LOG_SCALE", "type": "DOUBLE"}
    study = {
        "batch_size": batch_size,
        "dataset": dataset,
        "early_stopping": False,
        "model": model,
        "optimizer": optimizer,
        "parameter_configs": {"learning_rate": rate},
        "train_steps": 100,
    }
    return json.dumps(study | changes).encode()


def trial_json(trial_id: int, **changes: object) -> bytes:
    trial = {"parameters": {"learning_rate": 0.1 * trial_id}, "status": "COMPLETE", "steps": 100, "trial_id": trial_id}
    return json.dumps(trial | changes).encode()


def small_members(root: str = "root") -> dict[str, bytes]:
    """Two workloads with two studies of three trials each; every file is sound."""
    members = {}
    for workload in ("mnist/fc/sgd", "group/mnist/fc/sgd"):
        for batch_size in (8, 16):
            folder = f"{root}/{workload}/{batch_size}"
            members[f"{folder}/study.json"] = study_json(workload, batch_size)
            for trial_id in (1, 2, 10):
                members[f"{folder}/{trial_id}/metadata.json"] = trial_json(trial_id)
                rows = "".join(f"{step},{trial_id + 1 / (step + 1):.6g},nan\n" for step in range(0, 101, 25))
                members[f"{folder}/{trial_id}/measurements.csv"] = f"step,val/error,train/error\n{rows}".encode()
    return members


def write_tar(path: Path, members: dict[str, bytes] | list[tuple[str, bytes]]) -> Path:
    """A tar, compressed as its name says; a list may have names twice."""
    mode = {".bz2": "w:bz2", ".gz": "w:gz", ".xz": "w:xz"}.get(path.suffix, "w")
    with tarfile.open(path, mode) as archive:
        for name, data in members.items() if isinstance(members, dict) else members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def table_bytes(table: Path) -> dict[str, bytes]:
    """Every file of a table or tree."""
    return {
        path.relative_to(table).as_posix(): path.read_bytes() for path in sorted(table.rglob("*")) if path.is_file()
    }
