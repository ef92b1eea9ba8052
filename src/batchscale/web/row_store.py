"""What the overview knows of folders that were read before, kept in a file: a thousand folders are not read again.

The file is a cache beside the token. What it says of a folder counts only while the folder's files have the same
signature; a damaged file is as good as none.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchscale.records.durable import replace_durably

VERSION = 2
MOST = 20_000

SmallPoints = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class KnownWorkload:
    """One workload of a folder, as it was read."""

    workload: str
    goal: str
    points: SmallPoints
    trials: int | None
    problem: str = ""


@dataclass
class KnownRows:
    """Workloads of folders by path, with the signature they were read at, and critical batch sizes by points."""

    folders: dict[str, tuple[str, list[KnownWorkload]]] = field(default_factory=dict)
    fits: dict[SmallPoints, float | None] = field(default_factory=dict)


def read_known(file: Path) -> KnownRows:
    """What was stored; nothing where there is none, or another version's."""
    try:
        stored: Any = json.loads(file.read_bytes())
        if stored["version"] != VERSION:
            return KnownRows()
        folders = {
            path: (str(signature), [_workload(*row) for row in rows]) for path, (signature, rows) in stored["folders"]
        }
        fits = {_points(points): None if b_crit is None else float(b_crit) for points, b_crit in stored["fits"]}
        return KnownRows(folders, fits)
    except (OSError, ValueError, TypeError, KeyError):
        return KnownRows()


def write_known(file: Path, known: KnownRows) -> None:
    """Store it, whole or not at all."""
    folders = [
        (path, (signature, [(one.workload, one.goal, one.points, one.trials, one.problem) for one in rows]))
        for path, (signature, rows) in [*known.folders.items()][-MOST:]
    ]
    fits = [*known.fits.items()][-MOST:]
    replace_durably(file, json.dumps({"version": VERSION, "folders": folders, "fits": fits}))


def _workload(workload: str, goal: str, points: Any, trials: int | None, problem: str) -> KnownWorkload:
    number = None if trials is None else int(trials)
    return KnownWorkload(str(workload), str(goal), _points(points), number, str(problem))


def _points(stored: Any) -> SmallPoints:
    return tuple((int(size), int(steps)) for size, steps in stored)
