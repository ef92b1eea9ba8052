"""All that is known about one workload's curve: its points, how sure they are, its regimes, and what to trust less.

Gathers what ``analysis`` finds into one value that the curve chart and the report are made from.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from batchscale.analysis import Baseline, Regimes, regimes, steps_to_result
from batchscale.errors import AnalysisError
from batchscale.records.frames import Records
from batchscale.records.model import OWN_KEY
from batchscale.search import find_edges
from batchscale.spec import Goal, SearchSpace, WorkloadName

FEW_FINISHERS = 3

POINT_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "batch_size": pl.Int64,
    "steps": pl.Float64,  # null: the goal was not reached
    "steps_low": pl.Float64,  # interval of what a fresh search of the same size would find; null where unknown
    "steps_high": pl.Float64,
    "examples": pl.Float64,
    "epochs": pl.Float64,
    "trial_id": pl.Int64,
    "trials": pl.Int64,
    "reached": pl.Int64,
    "infeasible": pl.Int64,
    "incomplete": pl.Int64,
    "searches": pl.Int64,
    "flags": pl.String,  # why the point is to be trusted less, separated by "; "; null if there is no reason
}
# behind these columns: one Float64 column per metaparameter of the winning trial


@dataclass(frozen=True)
class Evidence:
    """The points of a curve and what they say. ``missing`` are sentences on what could not be found out."""

    workload: WorkloadName
    goal: Goal
    points: pl.DataFrame
    metaparameters: tuple[str, ...]
    regimes: Regimes | None
    missing: tuple[str, ...]

    @property
    def reached(self) -> pl.DataFrame:
        """The points at which the goal was reached."""
        return self.points.drop_nulls("steps")


def gather_evidence(
    records: Records, workload: WorkloadName, goal: Goal, *, baseline: Baseline | str = Baseline.ROBUST
) -> Evidence:
    """What the records say about a workload and a goal.

    Raises:
        AnalysisError: the workload has no such metric.
    """
    chosen = records.workload(workload)
    results = steps_to_result(chosen, goal)
    tuned = tuple(
        name for name in chosen.metaparameters if name in results.columns and not chosen.trials[name].is_null().all()
    )
    counts = _search_counts(chosen)
    flags = [_flags(chosen, row, tuned, counts.get(row["batch_size"], 1)) for row in results.iter_rows(named=True)]
    points = results.with_columns(
        pl.lit(None, dtype=pl.Float64).alias("steps_low"),
        pl.lit(None, dtype=pl.Float64).alias("steps_high"),
        pl.Series("searches", [counts.get(size, 1) for size in results["batch_size"]], dtype=pl.Int64),
        pl.Series("flags", flags, dtype=pl.String),
    ).select(*(pl.col(name).cast(kind) for name, kind in POINT_SCHEMA.items()), *tuned)
    found, missing = _regimes(points, goal, baseline)
    return Evidence(workload, goal, points.sort("batch_size"), tuned, found, tuple(missing))


def own_facts(text: str | None) -> dict[str, Any]:
    """Our own facts of a study or a trial, from its ``extra`` column; empty where there are none."""
    try:
        facts = json.loads(text or "{}").get(OWN_KEY, {})
    except (ValueError, AttributeError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _regimes(points: pl.DataFrame, goal: Goal, baseline: Baseline | str) -> tuple[Regimes | None, list[str]]:
    reached = points.drop_nulls("steps")
    unreached = [f"{size:,}" for size in points.filter(pl.col("steps").is_null())["batch_size"]]
    if reached.is_empty():
        trials = int(points["trials"].sum() or 0)
        return None, [f"None of the {trials:,} trials reached {goal}."]
    missing = [f"No trial reached the goal at batch size {', '.join(unreached)}."] if unreached else []
    try:
        found = regimes(reached, baseline=baseline)
    except AnalysisError as error:
        return None, [*missing, str(error)]
    return found, [*missing, found.fit_refusal] if found.fit_refusal else missing


def _search_counts(records: Records) -> dict[int, int]:
    facts = ((size, own_facts(extra)) for size, extra in records.studies.select("batch_size", "extra").iter_rows())
    return {size: max(1, len(known["searches"])) for size, known in facts if isinstance(known.get("searches"), list)}


def _flags(records: Records, row: dict[str, Any], tuned: tuple[str, ...], searches: int) -> str | None:
    if row["steps"] is None:
        return None
    flags = []
    space = _space_of(records, row["batch_size"], row["trial_id"])
    values = {name: row[name] for name in tuned if row[name] is not None}
    flags += [f"best trial at the {edge.side} end of {edge.parameter}" for edge in find_edges(space, values)[:2]]
    if row["reached"] < FEW_FINISHERS and row["reached"] < row["trials"]:
        flags.append(f"only {row['reached']} of {row['trials']} trials reached the goal")
    if searches > 1:
        flags.append(f"searched {searches} times")
    return "; ".join(flags) or None


def _space_of(records: Records, batch_size: int, trial_id: int) -> SearchSpace:
    """The space that a trial was drawn from: its own search's, or the study's."""
    here = pl.col("batch_size") == batch_size
    study = records.studies.filter(here).row(0, named=True)
    trial = records.trials.filter(here, pl.col("trial_id") == trial_id)["extra"]
    searches = own_facts(study["extra"]).get("searches")
    number = own_facts(trial[0] if len(trial) else None).get("search")
    configs: object = json.loads(study["parameter_configs"])
    if isinstance(searches, list) and isinstance(number, int) and 1 <= number <= len(searches):
        own = searches[number - 1]
        configs = own.get("space", configs) if isinstance(own, dict) else configs
    return SearchSpace.from_json(configs)
