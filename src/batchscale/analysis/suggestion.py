"""Suggested metaparameters for a batch size, the steps that one training with them needs, and its chance to succeed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import polars as pl

from batchscale.analysis.budgets import examples_by_dataset, train_examples
from batchscale.analysis.curve_analysis import AnalysisOptions, analyze, check_complete, select_workload
from batchscale.analysis.intervals import Estimate
from batchscale.analysis.metaparameters import derive_values
from batchscale.analysis.optima import DECAY_STEPS, MOMENTUM, round_value
from batchscale.analysis.outcomes import Outcome, trial_outcomes
from batchscale.analysis.results import results_of, winner_edges
from batchscale.analysis.single_training import DRAWS, Question, expected_steps, fit_bowl, reach_chance
from batchscale.analysis.tuned_sizes import Place, TunedSizes, read_tuned_sizes
from batchscale.analysis.units import EXAMPLES, SizeUnit
from batchscale.errors import AnalysisError
from batchscale.records.frames import Records, fixed_values
from batchscale.records.metadata.study import study_note
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

CLOSE = 0.1  # trials within this share of the best steps are listed beside a measured winner
FARTHEST = 16  # times outside the measured sizes
NO_ESTIMATE = Estimate()

SUGGESTION_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "metaparameter": pl.String,
    "value": pl.Float64,  # to train with
    "range_low": pl.Float64,  # 90 % range of the best value, from the scatter of the measured optima; null: unknown
    "range_high": pl.Float64,
    "low": pl.Float64,  # over the trials that came within 10 % of the best steps; null: not measured at this size
    "high": pl.Float64,
    "trials": pl.Int64,  # the number of such trials
    "winner": pl.Float64,  # of the best trial at this size; null: not measured at this size
}


class SuggestionSource(StrEnum):
    """The source of suggested values."""

    MEASURED = "measured"
    INTERPOLATED = "interpolated"
    EXTRAPOLATED = "extrapolated"
    NEAREST = "nearest"


@dataclass(frozen=True)
class Suggestion:
    """Metaparameters for one batch size.

    ``source``: "measured" there, "interpolated" between two ``batch_sizes``, "extrapolated" by the trend of the
    optima at all of them, or "nearest": outside of what was measured at fewer than three sizes, which show no trend.
    ``steps`` are the steps of one training with exactly these values, with their 90 % interval; no value if unknown.
    ``chance`` is its chance to reach the goal within ``budget`` steps, counted over ``trials_near`` trials near it.
    ``search_steps`` are the steps to result: the best of a whole search. ``distance`` is the factor by which the batch
    size is outside the measured ones, 1 inside. ``notes`` has by batch size the reasons to trust a study behind the
    values less: a winner at an edge, more than one search, no trial that reached the goal. ``derived`` is what the
    values mean at this batch size (`derive_values`), for the steps of one training.
    """

    workload: WorkloadName
    goal: Goal
    batch_size: int
    source: str
    batch_sizes: tuple[int, ...]
    steps: Estimate
    values: pl.DataFrame
    notes: Mapping[int, str]
    chance: float | None = None
    budget: int | None = None
    trials_near: float | None = None
    search_steps: Estimate = NO_ESTIMATE
    distance: float = 1.0
    unit: SizeUnit = EXAMPLES
    derived: Mapping[str, float] = field(default_factory=dict)


def suggest(records: Records, workload: WorkloadName, goal: Goal, batch_size: int) -> Suggestion:
    """Return metaparameters for a batch size, and what one training with them can expect.

    At and between measured sizes a value is the smoothed optimum: the local straight line, over log batch size, of each
    size's optimum. Outside them the effective learning rate follows its trend, which may level off, and stays below
    what diverged at the nearest size; every other metaparameter is that of the nearest size. A DISCRETE metaparameter,
    and one whose scale the studies do not share, takes the nearest size's value.

    Raises:
        AnalysisError: No study reached the goal, or the batch size is beyond the training set or too far outside the
            measured sizes.
    """
    selected = select_workload(records, workload)
    check_complete(selected, workload)
    _check_size(selected, workload, batch_size)
    outcomes = trial_outcomes(selected, goal)
    results = results_of(outcomes).filter(pl.col("steps").is_not_null()).sort("batch_size")
    if results.is_empty():
        raise AnalysisError(f"No COMPLETE trial of {workload} reached '{goal}'; choose a goal within reach.")
    winners = results.filter(pl.col("steps") > 0)
    if winners.is_empty():
        raise AnalysisError(f"A goal must take training. Found '{goal}', which {workload} reaches at step 0.")
    distance = _distance(winners["batch_size"].to_list(), batch_size)
    analysis = analyze(records, workload, goal, AnalysisOptions(confirmed=False))
    tuned = read_tuned_sizes(selected, outcomes, winners, trial_outcomes(selected, goal, confirmations=True))
    source, behind = _source(tuned.sizes, batch_size)
    search_steps = _search_steps(tuned, batch_size, analysis.summary.steps_at(batch_size) if analysis.summary else None)
    places = tuned.places_at(batch_size, extrapolate=source is SuggestionSource.EXTRAPOLATED)
    frame = _values(tuned, batch_size, places, search_steps, measured=source is SuggestionSource.MEASURED)
    notes = _notes(selected, outcomes, winners.filter(pl.col("batch_size").is_in(behind)))
    failed = outcomes.filter((pl.col("batch_size") == batch_size) & (pl.col("outcome") != Outcome.INCOMPLETE.value))
    if batch_size not in tuned.sizes and len(failed):
        notes[batch_size] = f"none of its {len(failed)} trials reached the goal"
    training = _Training()
    if source is not SuggestionSource.NEAREST:
        spacing = analysis.curve.filter(pl.col("batch_size").is_in(behind))["spacing"].fill_null(0).to_list()
        training = _one_training(tuned, batch_size, places, search_steps, min(spacing, default=0))
    values = dict(frame.select("metaparameter", "value").rows())
    fixed: Mapping[str, float] = next(iter(fixed_values(selected).values()), {})
    return Suggestion(
        unit=analysis.unit,
        derived=derive_values({**fixed, **values}, batch_size, training.steps.value or 0.0, analysis.unit),
        workload=workload,
        goal=goal,
        batch_size=batch_size,
        source=source.value,
        batch_sizes=behind,
        steps=training.steps,
        values=frame,
        notes=notes,
        chance=training.chance,
        budget=training.budget,
        trials_near=training.trials_near,
        search_steps=search_steps,
        distance=distance,
    )


def _check_size(records: Records, workload: WorkloadName, batch_size: int) -> None:
    if batch_size < 1:
        raise AnalysisError(f"A batch size is a whole number of at least 1. Found {batch_size}.")
    examples = train_examples(workload.dataset, examples_by_dataset(records, None))
    if examples is not None and batch_size > examples:
        raise AnalysisError(
            f"A batch must not be larger than the training set of {workload.dataset}, {examples:,} examples. Found "
            f"batch size {batch_size:,}."
        )


def _distance(sizes: list[int], batch_size: int) -> float:
    """Return how many times the batch size is outside the measured ones, 1 inside."""
    distance = max(batch_size / sizes[-1], sizes[0] / batch_size, 1.0)
    if distance > FARTHEST:
        side, end = ("largest", sizes[-1]) if batch_size > sizes[-1] else ("smallest", sizes[0])
        raise AnalysisError(
            f"A batch size must be within {FARTHEST} times the measured ones, because no trend reaches further. Found "
            f"{batch_size:,}, where the {side} size that reached the goal is {end:,}; measure sizes in between first."
        )
    return distance


def _source(sizes: list[int], batch_size: int) -> tuple[SuggestionSource, tuple[int, ...]]:
    """Return the source of the values, and the measured sizes they come from."""
    if batch_size in sizes:
        return SuggestionSource.MEASURED, (batch_size,)
    if sizes[0] < batch_size < sizes[-1]:
        below, above = max(s for s in sizes if s < batch_size), min(s for s in sizes if s > batch_size)
        return SuggestionSource.INTERPOLATED, (below, above)
    if len(sizes) > 2:
        return SuggestionSource.EXTRAPOLATED, tuple(sizes)
    return SuggestionSource.NEAREST, (sizes[0] if batch_size < sizes[0] else sizes[-1],)


def _search_steps(tuned: TunedSizes, batch_size: int, by_law: Estimate | None) -> Estimate:
    """Return the steps to result by the curve's summary, else between the winners; no value outside them."""
    if by_law is not None and by_law.value is not None:
        return by_law
    if batch_size in tuned.sizes:
        return Estimate(float(tuned.steps[tuned.sizes.index(batch_size)]))
    if tuned.sizes[0] < batch_size < tuned.sizes[-1]:
        return Estimate(math.exp(float(np.interp(math.log(batch_size), tuned.log_sizes, np.log(tuned.steps)))))
    return Estimate()


def _values(
    tuned: TunedSizes, batch_size: int, places: Mapping[str, Place], search_steps: Estimate, *, measured: bool
) -> pl.DataFrame:
    nearest, horizon = tuned.nearest(batch_size), tuned.steps_at(batch_size)
    outside = not tuned.sizes[0] <= batch_size <= tuned.sizes[-1]
    expected = search_steps.value if outside and search_steps.value is not None else horizon
    if batch_size < tuned.sizes[0]:
        horizon = max(horizon, expected)  # towards larger sizes those of the nearest: a law may promise too few
    rows: dict[str, tuple[object, ...]] = {}
    momentum: float | None = None
    for name in sorted(tuned.metaparameters, key=lambda name: (name != MOMENTUM, name)):
        place, config = places.get(name), tuned.coordinates.configs.get(name)
        ends: list[float | None] = [None, None]
        if place is None or config is None:
            value = tuned.most_frequent(name, nearest)
        else:
            steps = expected if name == DECAY_STEPS else horizon
            points = [tuned.coordinates.value(name, at, momentum, steps) for at in (place.chosen, *place.ends)]
            value = round_value(config, points[0])
            ends = [min(points[1], value), max(points[2], value)] if place.error is not None else ends
        if value is None:
            continue
        near = tuned.near_winner(name, nearest, CLOSE) if measured else (None, None, None, None)
        if measured and near[-1] is None:
            continue  # other sizes have it, this one does not
        momentum = value if name == MOMENTUM else momentum
        rows[name] = (name, value, *ends, *near)
    ordered = [rows[name] for name in tuned.metaparameters if name in rows]
    return pl.DataFrame(ordered, schema=SUGGESTION_SCHEMA, orient="row")


@dataclass(frozen=True)
class _Training:
    """The outcome to expect of one training."""

    steps: Estimate = NO_ESTIMATE
    chance: float | None = None
    trials_near: float | None = None
    budget: int | None = None


def _one_training(
    tuned: TunedSizes, batch_size: int, places: Mapping[str, Place], search_steps: Estimate, spacing: int
) -> _Training:
    rng = np.random.default_rng(0)
    cloud = tuned.cloud()
    bowl = fit_bowl(cloud)
    listed = [places.get(name, Place(0.0, 0.0, None)) for name in tuned.coordinates.names]
    place = np.array([item.chosen - item.best for item in listed]) / cloud.spread
    error = np.array([item.error or 0.0 for item in listed]) / cloud.spread
    log_budget = tuned.log_budget(batch_size)
    question = Question(
        log_size=math.log(batch_size),
        log_level=tuned.draw_levels(bowl, batch_size, search_steps, rng),
        offsets=place + error * rng.normal(size=(DRAWS, len(listed))),
        place=place,
        place_error=error,
        log_budget=log_budget,
        spacing=spacing,
    )
    budget = None if log_budget is None else round(math.exp(log_budget))
    return _Training(expected_steps(bowl, question, rng), *reach_chance(cloud, bowl, question), budget)


def _notes(records: Records, outcomes: pl.DataFrame, winners: pl.DataFrame) -> dict[int, str]:
    rows = winner_edges(records, outcomes, winners).select("batch_size", "edge", "at_edge", "searches").rows()
    notes = {size: study_note(edge if at_edge else None, searches) for size, edge, at_edge, searches in rows}
    return {size: note for size, note in notes.items() if note}
