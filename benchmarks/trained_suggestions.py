"""Trains with exactly the values that ``suggest`` gives, and counts: goal reached, steps inside the stated interval.

    python benchmarks/trained_suggestions.py EXPERIMENT.toml RECORDS [--seeds 2] [--parts 2] [--data-dir DIR]

Cases come from the records alone: every measured size, every inner size with its own study left out, and every size
four times beyond those that are left (the largest or the smallest three or more). A training has a fresh seed, the
study's evaluation plan and its step budget. Prints a line of JSON for every suggestion, then a row for every place:
trainings, goal reached, steps inside the stated interval (the table of decision 0210).
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from batchscale.analysis.suggestion import Suggestion, suggest
from batchscale.records.frames import Records
from batchscale.records.read import read_records
from batchscale.run.preflight import find_facts
from batchscale.spec.experiment import Experiment
from batchscale.spec.file import read_experiment
from batchscale.spec.plan import Study, derive_seed, make_plan
from batchscale.study.trial import TrialTask
from batchscale.training.settings import EngineSettings
from batchscale.training.study_engine import StudyEngine
from batchscale.workloads.registry import get_workload

PLACES = ("measured", "between", "4× above", "4× below")
FEWEST = 3  # sizes that a trend needs


@dataclass(frozen=True)
class Case:
    """A suggestion to train: the part of the records, the sizes it may use, and the size asked for."""

    records: Records
    part: str
    place: str
    sizes: tuple[int, ...]
    batch_size: int


def find_cases(records: Records, parts: int, least: int) -> Iterator[Case]:
    """All cases of the records, and of their trials dealt into parts."""
    sizes = sorted(records.studies["batch_size"].to_list())
    for part in range(parts):
        trials = records.trials.filter(pl.col("trial_id") % parts == part)
        dealt = Records(records.studies, trials, records.sources)
        name = f"part {part + 1} of {parts}"
        for size in sizes:
            if size < least:
                continue
            yield Case(dealt, name, "measured", tuple(sizes), size)
            if sizes[0] < size < sizes[-1]:
                yield Case(dealt, name, "between", tuple(other for other in sizes if other != size), size)
            smaller = tuple(other for other in sizes if other <= size // 4)
            if len(smaller) >= FEWEST and smaller[-1] * 4 == size:
                yield Case(dealt, name, "4× above", smaller, size)
            larger = tuple(other for other in sizes if other >= size * 4)
            if len(larger) >= FEWEST and larger[0] == size * 4:
                yield Case(dealt, name, "4× below", larger, size)


class Trainer:
    """Trains an experiment's workload at any of its batch sizes with given values."""

    def __init__(self, experiment: Experiment, data_dir: Path | None) -> None:
        self.experiment = experiment
        plan = make_plan(experiment, find_facts(experiment, data_dir))
        self.studies: dict[int, Study] = {study.batch_size: study for study in plan.studies}
        self.workload = get_workload(experiment.workload, data_dir)
        self.number = itertools.count(1)

    def train(self, requests: list[tuple[int, dict[str, float]]], seeds: int) -> list[list[int | None]]:
        """By request (batch size, values): the steps to the goal of every seed, None where it was not reached."""
        answers: dict[int, list[int | None]] = {}
        for size in sorted({size for size, _ in requests}):
            study = self.studies[size]
            tasks, owners = [], []
            for place, (asked, values) in enumerate(requests):
                for _ in range(seeds if asked == size else 0):
                    number = next(self.number)
                    seed = derive_seed("trained suggestion", self.experiment.seed, number)
                    tasks.append(TrialTask(number, values | study.fixed, seed, study.train_steps, -1))
                    owners.append(place)
            engine = StudyEngine(
                self.workload, study, self.experiment.evaluation, EngineSettings(population=min(len(tasks), 16))
            )
            for place, progress in zip(owners, engine.advance(tasks, goal=study.goal), strict=True):
                reached = [step for step, row in progress.rows if study.goal.is_reached_by(row[study.goal.metric])]
                steps = reached[0] if reached and progress.diverged_at is None else None
                answers.setdefault(place, []).append(steps)
        return [answers[place] for place in range(len(requests))]


def ask(case: Case, experiment: Experiment) -> Suggestion:
    """The suggestion of a case."""
    return suggest(
        case.records.filter(batch_size=case.sizes), experiment.workload.name, experiment.goal, case.batch_size
    )


def row_of(case: Case, result: Suggestion, steps: list[int | None]) -> dict[str, Any]:
    """One line of the output."""
    values = {row["metaparameter"]: row["value"] for row in result.values.to_dicts()}
    low, high = result.steps.low, result.steps.high
    return {
        "part": case.part,
        "place": case.place,
        "batch_size": case.batch_size,
        "values": values,
        "expected": result.steps.value,
        "low": low,
        "high": high,
        "chance": result.chance,
        "steps": steps,
        "reached": sum(count is not None for count in steps),
        "inside": sum(
            count is not None and low is not None and high is not None and low <= count <= high for count in steps
        ),
    }


def main() -> None:
    """Print lines and table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("records", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--parts", type=int, default=1, help="deal the trials into this many records")
    parser.add_argument("--least", type=int, default=1, help="the smallest batch size to train at")
    parser.add_argument("--most", type=int, default=10**9, help="the largest batch size to train at")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--places", nargs="*", default=PLACES, choices=PLACES)
    options = parser.parse_args()
    experiment = replace(read_experiment(options.experiment), seed=options.seeds)
    records = read_records(options.records).workload(experiment.workload.name)
    cases = [
        case
        for case in find_cases(records, options.parts, options.least)
        if case.place in options.places and case.batch_size <= options.most
    ]
    results = [ask(case, experiment) for case in cases]
    requests = [
        (case.batch_size, {row["metaparameter"]: row["value"] for row in result.values.to_dicts()})
        for case, result in zip(cases, results, strict=True)
    ]
    trained = Trainer(experiment, options.data_dir).train(requests, options.seeds)
    rows = [row_of(*parts) for parts in zip(cases, results, trained, strict=True)]
    for row in rows:
        print(json.dumps(row))
    for place in PLACES:
        some = [row for row in rows if row["place"] == place]
        total = sum(len(row["steps"]) for row in some)
        counts = " | ".join(str(sum(row[key] for row in some)) for key in ("reached", "inside"))
        print(f"| {place} | {total} | {counts} |")


if __name__ == "__main__":
    main()
