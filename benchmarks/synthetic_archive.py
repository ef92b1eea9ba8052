"""A synthetic archive with the studies and trial counts of the published one, and curves from a simple loss model.

``published_studies.csv`` has the 454 studies. ``write_archive`` makes a tar (compression by the file's name),
``write_tree`` the same records as directories. Everything is a pure function of (scale, seed).
"""

import bz2
import csv
import io
import json
import tarfile
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
from synthetic_workloads import LossModel, loss_model

ROOT = "batch_science"
EVALUATIONS = 536  # of a COMPLETE trial: makes 71.6 million measurements at full size
SLOWEST_BEST = 0.85  # how much slower than the model a trial with the best metaparameters may be
STATUSES = ("COMPLETE", "INCOMPLETE", "INFEASIBLE")
_STUDIES = Path(__file__).with_name("published_studies.csv")


@dataclass(frozen=True)
class PublishedStudy:
    """One row of the published table of studies."""

    dataset: str
    model: str
    optimizer: str
    batch_size: int
    complete: int
    incomplete: int
    infeasible: int

    @property
    def folder(self) -> str:
        """The study's folder, below the archive's root folder."""
        return f"{self.dataset}/{self.model}/{self.optimizer}/{self.batch_size}"


@dataclass(frozen=True)
class Scale:
    """How much of the full size is made: a fraction of each study's trials and of each trial's measurements."""

    trials: float = 1.0
    measurements: float = 1.0

    def count(self, full: int) -> int:
        """How many of ``full`` trials there are; a status that has trials keeps at least one."""
        return max(1, round(full * self.trials)) if full else 0


@dataclass
class Counts:
    """What was made."""

    studies: int = 0
    trials: Counter[str] = field(default_factory=Counter)
    measurements: int = 0


def published_studies() -> list[PublishedStudy]:
    """The 454 studies of the published archive, in its order."""
    with _STUDIES.open(newline="") as file:
        return [
            PublishedStudy(
                row["dataset"], row["model"], row["optimizer"],
                *(int(row[key]) for key in ("batch_size", "complete", "incomplete", "infeasible")),
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip


def write_archive(
    path: Path, scale: Scale, seed: int = 0, studies: Iterable[PublishedStudy] | None = None, level: int = 9
) -> Counts:
    """A tar at ``path`` (.tar, .tar.bz2 and so on) and what is in it."""
    counts = Counts()
    with _open_compressed(path, level) as stream, tarfile.open(fileobj=stream, mode="w|", bufsize=1 << 20) as archive:
        for name, data in members(scale, seed, studies, counts):
            info = tarfile.TarInfo(f"{ROOT}/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return counts


def write_tree(path: Path, scale: Scale, seed: int = 0, studies: Iterable[PublishedStudy] | None = None) -> Counts:
    """The same records as directories below ``path``."""
    counts = Counts()
    for name, data in members(scale, seed, studies, counts):
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return counts


def members(
    scale: Scale, seed: int, studies: Iterable[PublishedStudy] | None = None, counts: Counts | None = None
) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of every file, study by study."""
    counts = Counts() if counts is None else counts
    for study in published_studies() if studies is None else studies:
        yield from _study_members(study, scale, seed, counts)


def _study_members(study: PublishedStudy, scale: Scale, seed: int, counts: Counts) -> Iterator[tuple[str, bytes]]:
    model = loss_model(study.dataset, study.model, study.optimizer)
    rng = np.random.default_rng([seed, zlib.crc32(study.folder.encode())])
    train_steps = _train_steps(study, model)
    space = _space(study, model, train_steps)
    numbers = [scale.count(n) for n in (study.complete, study.incomplete, study.infeasible)]
    points = _points(space, sum(numbers), rng)
    _plant_best(points, study, model)
    statuses = _statuses(points, numbers, rng)
    yield f"{study.folder}/study.json", _json(_study_json(study, space, train_steps))
    curves = _curves(study, model, points, statuses, train_steps, scale, rng)
    header = ",".join(curves.frame.columns).encode() + b"\n"
    text = curves.frame.write_csv(include_header=False).encode().replace(b"NaN", b"nan")
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    stops = [0, *ends[np.cumsum(curves.rows) - 1].tolist()]
    for index, status in enumerate(statuses):
        trial_id = index + 1
        folder = f"{study.folder}/{trial_id}"
        yield f"{folder}/metadata.json", _json({
            "_internal_study_name": f"{study.model}-20180601-bs{study.batch_size}",
            "_internal_trial_id": trial_id,
            "parameters": {name: values[index].item() for name, values in points.items()},
            "status": STATUSES[status],
            "steps": int(curves.last_steps[index]),
            "trial_id": trial_id,
        })  # fmt: skip
        yield f"{folder}/measurements.csv", header + text[stops[index] : stops[index + 1]]
    counts.studies += 1
    counts.trials.update(STATUSES[status] for status in statuses)
    counts.measurements += int(curves.rows.sum())


def steps_to_goal(study: PublishedStudy, model: LossModel) -> float:
    """The steps to the workload's goal with the best metaparameters."""
    return model.steps + model.examples / study.batch_size


def _train_steps(study: PublishedStudy, model: LossModel) -> int:
    steps = steps_to_goal(study, model) * 2.5
    if study.dataset.startswith("solution_quality"):
        steps = max(steps, 12e6 / study.batch_size**0.38)
    elif study.dataset == "lm1b" and study.model in ("transformer_base", "transformer_narrow_and_shallow"):
        steps = max(steps, 120_000)
    digits = 10 ** max(0, int(np.log10(steps)) - 1)
    return int(np.ceil(steps / digits) * digits)


def _has_time_budget(study: PublishedStudy) -> bool:
    return study.dataset == "common_crawl"


def _best_rate(study: PublishedStudy, model: LossModel) -> float:
    return model.best_rate * study.batch_size / (1 + study.batch_size / model.rate_batch)


def _space(study: PublishedStudy, model: LossModel, train_steps: int) -> dict[str, dict[str, Any]]:
    # The best rate lies well inside the space, below the share of it where training diverges.
    feasible = 1 - study.infeasible / (study.complete + study.incomplete + study.infeasible)
    momentum = study.optimizer != "sgd"
    middle = np.log10(_best_rate(study, model)) - (1.5 if momentum else 0)
    low = middle - 4 * (0.05 + 0.75 * feasible)
    space: dict[str, dict[str, Any]] = {
        "learning_rate": {
            "max_value": float(f"{10 ** (low + 4):.3g}"), "min_value": float(f"{10**low:.3g}"),
            "scale": "LOG_SCALE", "type": "DOUBLE",
        }
    }  # fmt: skip
    if momentum:
        space["momentum"] = {"max_value": 0.999, "min_value": 0.0, "scale": "REVERSE_LOG_SCALE", "type": "DOUBLE"}
    if model.decay:
        space["learning_rate_decay_steps"] = {
            "max_value": train_steps, "min_value": train_steps // 2, "scale": "", "type": "INTEGER",
        }  # fmt: skip
    if model.decay and study.model == "resnet_50":
        space["end_learning_rate_factor"] = {
            "max_value": 0.1, "min_value": 0.0001, "scale": "LOG_SCALE", "type": "DOUBLE",
        }  # fmt: skip
    if model.label_smoothing:
        large = study.model == "resnet_50" and study.batch_size > 2**14
        points = [p for p in model.label_smoothing if p != 0.01 or not large]
        space["label_smoothing"] = {"feasible_points": points, "type": "DISCRETE"}
    return dict(sorted(space.items()))


def _points(space: dict[str, dict[str, Any]], count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Low-discrepancy points (an additive recurrence with the generalised golden ratio), as values of the space."""
    ratio = 2.0
    for _ in range(40):
        ratio = (1 + ratio) ** (1 / (len(space) + 1))
    steps = (1 / ratio) ** np.arange(1, len(space) + 1)
    units = (rng.random(len(space)) + np.arange(1, count + 1)[:, None] * steps) % 1
    return {name: _values(config, units[:, column]) for column, (name, config) in enumerate(space.items())}


def _plant_best(points: dict[str, np.ndarray], study: PublishedStudy, model: LossModel) -> None:
    """Make the first trial the best one, so that the goal is reached at every scale."""
    rate = _best_rate(study, model)
    if "momentum" in points:
        points["momentum"][0] = 1 - 10**-1.5
        rate *= 10**-1.5
    points["learning_rate"][0] = rate
    if model.label_smoothing:
        points["label_smoothing"][0] = max(model.label_smoothing)


def _values(config: dict[str, Any], unit: np.ndarray) -> np.ndarray:
    if config["type"] == "DISCRETE":
        points = np.array(config["feasible_points"])
        return points[(unit * len(points)).astype(int)]
    low, high = config["min_value"], config["max_value"]
    if config["type"] == "INTEGER":
        return low + (unit * (high - low + 1)).astype(np.int64)
    if config["scale"] == "LOG_SCALE":
        return low * (high / low) ** unit
    return 1 - (1 - high) * ((1 - low) / (1 - high)) ** (1 - unit)


def _effective_rate(points: dict[str, np.ndarray]) -> np.ndarray:
    return points["learning_rate"] / (1 - points.get("momentum", np.zeros(1)))


def _statuses(points: dict[str, np.ndarray], numbers: list[int], rng: np.random.Generator) -> np.ndarray:
    """Indices into STATUSES: the trials of the largest effective learning rates diverge."""
    rate = np.log10(_effective_rate(points))
    rank = rate + rng.normal(0, 0.1, len(rate))
    rank[0] = -np.inf  # the planted trial is COMPLETE
    order = np.argsort(rank, kind="stable")
    _, incomplete, infeasible = numbers
    statuses = np.zeros(len(rate), int)
    statuses[order[len(rate) - infeasible :]] = 2
    feasible = np.sort(order[1 : len(rate) - infeasible])
    statuses[rng.choice(feasible, incomplete, replace=False)] = 1
    return statuses


@dataclass(frozen=True)
class Curves:
    """The measurements of a study's trials, one after the other, and the number of rows of each."""

    frame: pl.DataFrame
    rows: np.ndarray
    last_steps: np.ndarray


def _curves(
    study: PublishedStudy, model: LossModel, points: dict[str, np.ndarray], statuses: np.ndarray, train_steps: int,
    scale: Scale, rng: np.random.Generator,
) -> Curves:  # fmt: skip
    grid = _evaluation_steps(study, train_steps, max(8, round(EVALUATIONS * scale.measurements)))
    share = np.where(statuses == 0, 1.0, rng.uniform(0.05, np.where(statuses == 1, 0.95, 0.5)))
    rows = np.maximum(2, np.ceil(share * len(grid)).astype(int))
    trial = np.repeat(np.arange(len(rows)), rows)
    position = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
    step = grid[position]
    distance = np.log10(_effective_rate(points) / _best_rate(study, model))
    speed = np.exp(-0.5 * (distance / np.where(distance > 0, 0.5, 0.9)) ** 2) * rng.uniform(SLOWEST_BEST, 1, len(rows))
    floor = _floors(study, model, points, speed)
    reach = (model.start - model.floor) / (model.goal - model.floor)
    unit = steps_to_goal(study, model) / (reach ** (1 / model.power) - 1)
    excess = (model.start - floor[trial]) * (1 + step * speed[trial] / unit) ** -model.power
    noise = np.exp(rng.normal(0, 0.01, (3, len(step))))
    frame = _metrics(model, step, floor[trial], excess, noise)
    diverged = np.cumsum(rows)[statuses == 2] - 1
    values = {name: _six_digits(column) for name, column in frame.items()}
    for column in values.values():
        column[diverged] = np.nan
    return Curves(pl.DataFrame({"step": step, **values}), rows, step[np.cumsum(rows) - 1])


def _evaluation_steps(study: PublishedStudy, train_steps: int, count: int) -> np.ndarray:
    """Steps of the evaluations: from 0 to the budget, unevenly spaced, never twice the same."""
    if study.dataset.startswith("solution_quality"):
        steps = np.geomspace(10, train_steps, count - 1)
    else:
        steps = np.linspace(0, train_steps, count)[1:]
        steps[:-1:3] *= 1 + 0.4 / np.arange(1, count)[:-1:3]  # the published intervals are uneven as well
    return np.unique(np.concatenate([[0], np.round(steps).astype(np.int64)]))


def _floors(study: PublishedStudy, model: LossModel, points: dict[str, np.ndarray], speed: np.ndarray) -> np.ndarray:
    floor = model.floor * (1 + 0.05 * np.maximum(0, SLOWEST_BEST - speed))
    smoothing = points.get("label_smoothing")
    if smoothing is None:
        return floor
    if study.model == "resnet_50":  # regularization decides whether the largest batches reach the goal
        harm = 0.02 * np.log2(study.batch_size / 64) / 10
        harm = max(harm, model.goal - model.floor + 0.002) if study.batch_size >= 2**14 else harm
        return floor + np.where(smoothing < 0.1, harm, 0.0)
    return floor * np.where(smoothing > 0, 0.96, 1.0)


def _metrics(
    model: LossModel, step: np.ndarray, floor: np.ndarray, excess: np.ndarray, noise: np.ndarray
) -> dict[str, np.ndarray]:
    columns: dict[str, np.ndarray] = {}
    for split, share, factor in (("train", 0.85, noise[0]), ("val", 1.0, noise[1]), ("test", 1.01, noise[2])):
        value = floor * share + excess * factor
        if model.kind == "language":
            columns[f"{split}/cross_entropy_error"] = value
        elif model.kind == "average_precision":
            columns[f"{split}/cross_entropy_error"] = 0.02 * value
            columns[f"{split}/average_precision"] = 1 - np.minimum(value, 1.0)
        else:
            error = np.rint(np.minimum(value, 1.0) * model.evaluated) / model.evaluated
            columns[f"{split}/cross_entropy_error"] = 3.5 * error**1.1 * np.where(step > 0, factor, 1)
            columns[f"{split}/classification_error"] = error
    return columns


def _six_digits(values: np.ndarray) -> np.ndarray:
    """The values rounded to six significant digits, as the published files print them."""
    power = 10.0 ** (5 - np.floor(np.log10(np.maximum(np.abs(values), 1e-12))))
    return np.rint(values * power) / power


def _study_json(study: PublishedStudy, space: dict[str, dict[str, Any]], train_steps: int) -> dict[str, Any]:
    return {
        "batch_size": study.batch_size,
        "dataset": study.dataset.rpartition("/")[2],
        "early_stopping": study.dataset == "mnist" and study.incomplete > 0,
        "model": study.model,
        "optimizer": study.optimizer,
        "parameter_configs": space,
        "train_steps": 0 if _has_time_budget(study) else train_steps,
    }


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=2).encode()


def _open_compressed(path: Path, level: int) -> BinaryIO:
    if path.name.endswith(".bz2"):
        return _ParallelBzip2(path, level)
    if path.name.endswith(".gz"):
        import gzip

        return gzip.open(path, "wb", level)  # type: ignore[return-value]
    if path.name.endswith(".xz"):
        import lzma

        return lzma.open(path, "wb", preset=min(level, 6))  # type: ignore[return-value]
    if path.name.endswith(".zst"):
        import zstandard

        return zstandard.open(path, "wb")  # type: ignore[return-value]
    return path.open("wb")


class _ParallelBzip2(io.RawIOBase):
    """A bzip2 file written by two threads, as many streams of 900 kB each."""

    def __init__(self, path: Path, level: int) -> None:
        self._file, self._level = path.open("wb"), level
        self._pool, self._jobs = ThreadPoolExecutor(2), deque()
        self._buffer = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._buffer += data
        while len(self._buffer) >= 900_000:
            self._submit(900_000)
        return len(data)

    def _submit(self, size: int) -> None:
        chunk = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._jobs.append(self._pool.submit(bz2.compress, chunk, self._level))
        while len(self._jobs) > 8:
            self._file.write(self._jobs.popleft().result())

    def close(self) -> None:
        if not self.closed:
            self._submit(len(self._buffer))
            while self._jobs:
                self._file.write(self._jobs.popleft().result())
            self._pool.shutdown()
            self._file.close()
        super().close()
