"""The next round of an adaptive experiment: which batch sizes to measure with how many trials, or why to stop.

A pure function of what was measured, so that a resumed run decides as an uninterrupted one. All sizes have the same
number of trials: the fewest steps of 16 trials lie below those of 8, so that a size with more trials than its
neighbours would look faster than it is. More trials therefore go to all measured sizes at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from batchscale.analysis.confidence_set import FEWEST_SIZES as FEWEST_FOR_LAWS
from batchscale.analysis.confidence_set import ConfidenceSet, find_confidence_set
from batchscale.analysis.curves import Array
from batchscale.analysis.evidence import Misfit, find_misfit
from batchscale.analysis.intervals import EXPONENTS, Estimate, StudyPoint, pool_exponents
from batchscale.analysis.noise import MOST_FREEDOM, Noise, resolution_variance
from batchscale.analysis.scaling import fit_families
from batchscale.formatting import count_text, list_sizes, rounded_text
from batchscale.prediction.next_measurement import Candidate, Ranked, rank_measurements
from batchscale.prediction.quantities import OpenQuestion, Spread, factor_text
from batchscale.spec.adaptive import AdaptivePlan, ChoiceKind, CostUnit, RoundChoice

LEVEL = 0.9
FEWEST_SIZES = 5  # that an interval must rest on before it ends a run: fewer do not tell families of laws apart
START_PLACES = (0.25, 0.5, 0.75, 1.0)  # on the logarithmic way from the smallest to the largest: small ones are dear
START_FACTORS = (1 / 8, 1 / 2, 2, 8)  # around a predicted size
MORE_TRIALS = 1.5


@dataclass(frozen=True)
class MeasuredSize:
    """A batch size with a finished study: its steps to result (None: the goal was not reached), and the cost."""

    batch_size: int
    steps: float | None
    cost: float


@dataclass(frozen=True, eq=False)
class RoundProgress:
    """All that was measured so far.

    ``noise`` is that of the sizes that reached the goal, ``points`` are these with their trials, by growing size.
    ``trials`` is the number of trials that every study has, ``rounds`` the number of rounds so far.
    """

    sizes: tuple[MeasuredSize, ...]
    noise: Noise
    points: tuple[StudyPoint, ...]
    trials: int
    rounds: int

    @cached_property
    def reached(self) -> list[MeasuredSize]:
        """The sizes that reached the goal, growing."""
        return sorted((size for size in self.sizes if size.steps is not None), key=lambda size: size.batch_size)

    @property
    def spent(self) -> float:
        """The cost of everything so far."""
        return sum(size.cost for size in self.sizes)


@dataclass(frozen=True)
class Design:
    """What may be measured, and for what: the aim, the question, and the batch sizes to choose from, growing."""

    plan: AdaptivePlan
    question: OpenQuestion
    sizes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Standing:
    """The laws that agree with the measured points, and the spread of the aim over them."""

    laws: ConfidenceSet
    misfit: Misfit | None
    spread: Spread

    @property
    def interval(self) -> Estimate:
        """The batch sizes that the laws allow."""
        return self.spread.interval


def first_look(design: Design, size: int) -> RoundChoice:
    """Return a first round at one size, whose gradient noise tells where to go on: `start_round` follows it."""
    plan = design.plan
    reason = f"start with batch size {size:,}, {plan.first_trials} trials: their gradient noise places the others"
    return RoundChoice(1, ChoiceKind.START, (size,), plan.first_trials, reason, unit=plan.unit)


def start_round(
    design: Design, prediction: tuple[float, str] | None = None, progress: RoundProgress | None = None
) -> RoundChoice:
    """Return the first sizes: around a predicted one, if there is one with its name, else spread over all.

    After a first look at one size, ``progress`` has it, and the sizes are those beside it.
    """
    plan, pool = design.plan, design.sizes
    if not plan.chooses_sizes:
        sizes, why = pool, "the batch sizes of the file"
    elif prediction is not None:
        value, name = prediction
        sizes = _nearest(pool, [value * factor for factor in START_FACTORS])
        why = f"around {rounded_text(value)}, {name}"
    else:
        sizes = _nearest(pool, [pool[round(place * (len(pool) - 1))] for place in START_PLACES])
        why = f"spread over {pool[0]:,} to {pool[-1]:,}, because nothing predicts the {plan.aim.label}"
    if progress is not None:
        if plan.budget is not None and progress.spent >= plan.budget:
            return _stop(design, progress, _spent(plan, progress, None))
        seen = progress.sizes[0].batch_size
        nearest = min(sizes, key=lambda size: abs(math.log(size / seen)))
        sizes = tuple(size for size in sizes if size != nearest)
    begin = "start" if progress is None else "continue"
    reason = f"{begin} with batch sizes {list_sizes(list(sizes))}, {plan.first_trials} trials each: {why}"
    number = 1 if progress is None else progress.rounds + 1
    return RoundChoice(number, ChoiceKind.START, sizes, plan.first_trials, reason, unit=plan.unit)


def next_round(design: Design, progress: RoundProgress) -> RoundChoice:
    """Return the round that comes next, or the one that ends the run, with its reason."""
    if len(progress.reached) < FEWEST_FOR_LAWS:
        return _find_more_sizes(design, progress)
    if design.question.problem:
        return _stop(design, progress, design.question.problem)
    standing = assess(design, progress)
    plan, low, high = design.plan, standing.interval.low, standing.interval.high
    candidates = _candidates(design, progress, standing)
    is_narrow = standing.misfit is None and math.exp(standing.spread.width()) < plan.factor
    needed = [each for each in candidates if is_narrow and each.batch_size == standing.spread.needed_size is not None]
    fewest = min(FEWEST_SIZES, len(design.sizes) - len(progress.sizes) + len(progress.reached))
    if is_narrow and not needed and len(progress.reached) >= fewest:
        return _stop(design, progress, standing.spread.describe(plan.factor), standing)
    if not candidates:
        return _stop(design, progress, f"{_describe(design, standing)}; nothing more may be measured", standing)
    left = math.inf if plan.budget is None else plan.budget - progress.spent
    ranked = rank_measurements(standing.laws, progress.noise, design.question, needed or candidates)
    affordable = [each for each in ranked if each.candidate.cost <= left]
    if not affordable:
        cheapest = min(each.candidate.cost for each in ranked)
        return _stop(design, progress, f"{_spent(plan, progress, cheapest)}; {_describe(design, standing)}", standing)
    best = affordable[0]
    size = best.candidate.batch_size
    others = [each for each in affordable if (each.candidate.batch_size is None) != (size is None)]
    reason = _reason(standing.spread, best, others[0] if others else None, plan.unit)
    if needed:
        reason = f"{_name(best.candidate)}, not measured so far: {standing.spread.describe()}"
    return RoundChoice(
        round=progress.rounds + 1,
        kind=ChoiceKind.MORE_TRIALS if size is None else ChoiceKind.NEW_SIZE,
        sizes=tuple(each.batch_size for each in progress.sizes) if size is None else (size,),
        trials=best.candidate.trials,
        reason=reason,
        low=low,
        high=high,
        expected_factor=best.factor_after,
        expected_cost=best.candidate.cost,
        unit=plan.unit,
    )


def assess(design: Design, progress: RoundProgress) -> Standing:
    """Return the laws that agree with the points, and the interval of the aim; three sizes must have reached the goal.

    The laws are those of the analysis: 90 %, of all families that the evidence does not reject.
    """
    sizes, steps = _arrays(progress.reached)
    fit = fit_families(np.log(sizes), np.log(steps), progress.noise)
    laws = find_confidence_set(sizes, steps, progress.noise, LEVEL, fit)
    misfit = find_misfit(fit.best, np.log(sizes), np.log(steps), progress.noise)
    return Standing(laws, misfit, design.question.spread(laws))


# --- candidates -------------------------------------------------------------------------------------------------


def _candidates(design: Design, progress: RoundProgress, standing: Standing) -> list[Candidate]:
    plan, trials = design.plan, progress.trials
    variance = float(progress.noise.variances.mean())
    measured = {size.batch_size for size in progress.sizes}
    candidates = []
    for size in design.sizes if plan.chooses_sizes else ():
        if size not in measured:
            cost = trials * _steps_at(standing.laws, size) * _cost_of_step(progress, size)
            candidates.append(Candidate(size, trials, cost, variance))
    has_enough = not candidates or len(progress.reached) >= FEWEST_SIZES
    if plan.chooses_trials and trials < plan.most_trials and has_enough:
        more = min(math.ceil(MORE_TRIALS * trials), plan.most_trials)
        cost = progress.spent * (more - trials) / trials
        candidates.append(Candidate(None, more, cost, _variance_factor(progress, standing, more)))
    return candidates


def _steps_at(laws: ConfidenceSet, size: int) -> float:
    """Return the steps to result to expect at a size: by the best law, else by the laws that have any there."""
    best = float(laws.best_log_steps(float(size))[0])
    if not math.isfinite(best):
        logs = laws.log_steps(float(size))[:, 0]
        best = float(np.median(logs[np.isfinite(logs)])) if np.isfinite(logs).any() else 0.0
    return math.exp(best)


def _cost_of_step(progress: RoundProgress, size: int) -> float:
    """Return the cost of a trial for each step to result at a size, along the trend over the measured sizes.

    It is about the batch size where examples are counted, and more than 1 where steps are: trials that do not win are
    trained as well.
    """
    sizes, steps = _arrays(progress.reached)
    costs = np.array([max(each.cost, 1e-9) for each in progress.reached])
    line = np.polyfit(np.log(sizes), np.log(costs / (progress.trials * steps)), 1)
    return math.exp(float(np.polyval(line, math.log(size))))


def _variance_factor(progress: RoundProgress, standing: Standing, more: int) -> float:
    """Return the factor of the variances of log steps, as the confidence set uses them, with more trials.

    The noise of a search falls with its trials as N^(-2/c), c the exponent of its tail. The part of the variance that
    comes from the evaluation spacing does not, nor does a misfit of the law beyond the noise, which widens the set.
    """
    noise, points = progress.noise, progress.points
    weights = pool_exponents([point.finishers for point in points])
    falling = float((weights * (progress.trials / more) ** (2 / EXPONENTS)).sum())
    coarse = np.array([resolution_variance(min(point.spacing / point.steps, 1.0)) for point in points])
    fixed = float(np.clip(coarse / noise.variances, 0.0, 1.0).mean()) if noise.is_known else 0.0
    factor = fixed + (1 - fixed) * falling
    free = max(len(points) - standing.laws.best.family.parameters, 0)
    misfit = max(standing.laws.best.squares - free, 0.0) / (min(noise.freedom, MOST_FREEDOM) + free)
    return (factor + misfit) / (1 + misfit) if noise.is_known else 1.0


def _find_more_sizes(design: Design, progress: RoundProgress) -> RoundChoice:
    """Return the next size while fewer than three reached the goal: no law can be fitted yet.

    The nearest size to one that reached it comes first; without any, the goal is taken for out of reach.
    """
    plan = design.plan
    measured = {size.batch_size for size in progress.sizes}
    free = [size for size in design.sizes if size not in measured] if plan.chooses_sizes else []
    count = count_text(len(progress.reached), "batch size")
    if not progress.reached or not free:
        return _stop(design, progress, f"{count} of {len(progress.sizes)} reached the goal, and a curve needs three")
    if plan.budget is not None and progress.spent >= plan.budget:
        return _stop(design, progress, _spent(plan, progress, None))
    logs = [math.log(size.batch_size) for size in progress.reached]
    size = min(free, key=lambda each: (min(abs(math.log(each) - log) for log in logs), -each))
    reason = f"batch size {size:,}: only {count} reached the goal so far, and this is next to them"
    return RoundChoice(progress.rounds + 1, ChoiceKind.NEW_SIZE, (size,), progress.trials, reason, unit=plan.unit)


# --- sentences --------------------------------------------------------------------------------------------------


def _stop(design: Design, progress: RoundProgress, reason: str, standing: Standing | None = None) -> RoundChoice:
    interval = Estimate() if standing is None else standing.interval
    sizes = tuple(size.batch_size for size in progress.sizes)
    return RoundChoice(
        round=progress.rounds + 1,
        kind=ChoiceKind.STOP,
        sizes=sizes,
        trials=progress.trials,
        reason=f"stop: {reason}",
        low=interval.low,
        high=interval.high,
        unit=design.plan.unit,
    )


def _describe(design: Design, standing: Standing) -> str:
    """Return the answer so far as text."""
    if standing.misfit is not None:
        return f"no law describes the points, so that the {design.plan.aim.label} has no interval"
    return standing.spread.describe()


def _reason(spread: Spread, best: Ranked, other: Ranked | None, unit: CostUnit) -> str:
    def expect(each: Ranked) -> str:
        return f"to {factor_text(math.log(each.factor_after))} for about {_amount(each.candidate.cost, unit)}"

    what = _name(best.candidate)
    if best.factor_after >= best.factor_before * (1 - 1e-9):
        return f"{what}: no single round is expected to narrow {spread.subject}; this is the cheapest"
    text = (
        f"{what}: expected to narrow {spread.subject} from {factor_text(math.log(best.factor_before))} {expect(best)}"
    )
    return text if other is None else f"{text}; {_name(other.candidate)}: {expect(other)}"


def _name(candidate: Candidate) -> str:
    if candidate.batch_size is None:
        return f"{candidate.trials} trials at every size"
    return f"batch size {candidate.batch_size:,}"


def _spent(plan: AdaptivePlan, progress: RoundProgress, next_cost: float | None) -> str:
    assert plan.budget is not None
    text = f"the budget of {_amount(plan.budget, plan.unit)} is spent: {_amount(progress.spent, plan.unit)} used"
    return text if next_cost is None else f"{text}, and the next round takes about {_amount(next_cost, plan.unit)}"


def _amount(cost: float, unit: CostUnit) -> str:
    return f"{float(f'{cost:.3g}'):,.0f} {unit}"


def _nearest(pool: Sequence[int], targets: Sequence[float]) -> tuple[int, ...]:
    """Return a different size of the pool for each target, the nearest that is left, growing."""
    left, sizes = list(pool), []
    for target in targets[: len(pool)]:
        size = min(left, key=lambda each: (abs(math.log(each / target)), each))
        left.remove(size)
        sizes.append(size)
    return tuple(sorted(sizes))


def _arrays(reached: Sequence[MeasuredSize]) -> tuple[Array, Array]:
    sizes = np.array([float(size.batch_size) for size in reached])
    return sizes, np.array([float(size.steps or 1.0) for size in reached])
