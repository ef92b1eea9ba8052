"""The plan at a glance: its key figures, one recommendation, and the configurations to consider as rows of text.

Report, web pages and notebooks show the same ``PlanAnswer``.
"""

from dataclasses import dataclass

from batchscale.formatting import duration, times_text, whole_text
from batchscale.planning.estimate_text import memory_text
from batchscale.planning.plan import MachinePlan
from batchscale.planning.recommend import Choice
from batchscale.planning.sentences import cost_text, place_text, settings_text, share_text, size_text
from batchscale.planning.step_model import MEASURED

MOST_ROWS = 12
COLUMNS = ("configuration", "batch size", "steps", "time", "interval", "cost", "")
NUMBERS = frozenset((1, 2, 3, 4, 5))


@dataclass(frozen=True)
class PlanFigure:
    """A key figure of a plan as text; ``interval`` is the configuration that it is of."""

    label: str
    value: str
    interval: str
    trust: None = None


@dataclass(frozen=True)
class PlanRow:
    """A configuration as text: the cells of ``COLUMNS``, and the details of its recipe."""

    cells: tuple[str, ...]
    tags: tuple[str, ...]
    details: tuple[tuple[str, str], ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """The details that distinguish it from other rows, short."""
        texts = dict(self.details)
        reached = texts.get("runs that reached the goal", "").partition(";")[0]
        notes = (
            texts.get("metaparameters"),
            reached and f"{reached} runs reached it",
            texts.get("step time"),
            texts.get("memory"),
        )
        return tuple(note for note in notes if note)


@dataclass(frozen=True)
class PlanAnswer:
    """The figures, the one sentence, and the rows: those of the front, then the fastest, by expected time."""

    figures: tuple[PlanFigure, ...]
    recommendation: str
    rows: tuple[PlanRow, ...]


def make_plan_answer(plan: MachinePlan, most_rows: int = MOST_ROWS) -> PlanAnswer:
    """Return the answer of a plan."""
    return PlanAnswer(_figures(plan), recommendation(plan), _rows(plan, most_rows))


def recommendation(plan: MachinePlan) -> str:
    """Return the one sentence: what to train on, by the limits that were given."""
    best, request, unit = plan.recommendations, plan.request, plan.unit
    if request.deadline_s is not None or request.budget is not None:
        return _within_limits(plan)
    if _is_same(best.fastest, best.cheapest):
        return f"Train on {_short(best.cheapest)}: {_both(best.cheapest, unit)}, the fastest and the cheapest at once."
    text = f"Train on {_short(best.cheapest)} to pay least: {_both(best.cheapest, unit)}"
    least, most = best.cheapest["expected_cost"], best.fastest["expected_cost"]
    price = f"{times_text(most / least)} times the cost" if least else cost_text(most, unit)
    return (
        f"{text}; {_short(best.fastest)} is the fastest, with {duration(best.fastest['expected_time_s'])} at {price}."
    )


def _within_limits(plan: MachinePlan) -> str:
    best, request, unit = plan.recommendations, plan.request, plan.unit
    limits, choices = [], []
    if request.deadline_s is not None:
        limits.append(duration(request.deadline_s))
        choices.append(best.within_deadline)
    if request.budget is not None:
        limits.append(cost_text(request.budget, unit))
        choices.append(best.within_budget)
    limit = f"within {' and '.join(limits)}"
    meets = [choice for choice in choices if choice is not None and _meets(plan, choice)]
    if not meets:
        least = duration(best.fastest["expected_time_s"]), cost_text(best.cheapest["expected_cost"], unit)
        return (
            f"No configuration reaches the goal {limit}: the fastest takes {least[0]}, the cheapest costs {least[1]}."
        )
    role = "cheapest" if request.deadline_s is not None else "fastest"
    return f"Train on {_short(meets[0])}: {_both(meets[0], unit)}, the {role} {limit}."


def _meets(plan: MachinePlan, choice: Choice) -> bool:
    request = plan.request
    in_time = request.deadline_s is None or choice["expected_time_s"] <= request.deadline_s
    return in_time and (request.budget is None or choice["expected_cost"] <= request.budget)


def _figures(plan: MachinePlan) -> tuple[PlanFigure, ...]:
    best, request, unit = plan.recommendations, plan.request, plan.unit
    figures = [
        PlanFigure("Fastest", duration(best.fastest["expected_time_s"]), _cost_and_place(best.fastest, unit)),
        PlanFigure("Cheapest", cost_text(best.cheapest["expected_cost"], unit), _time_and_place(best.cheapest)),
    ]
    if request.budget is not None:
        label, choice = f"Fastest within {cost_text(request.budget, unit)}", best.within_budget
        texts = ("none", "no configuration is as cheap")
        if choice is not None:
            texts = (duration(choice["expected_time_s"]), _cost_and_place(choice, unit))
        figures.append(PlanFigure(label, *texts))
    if request.deadline_s is not None:
        label, choice = f"Cheapest within {duration(request.deadline_s)}", best.within_deadline
        texts = ("none", "no configuration is as fast")
        if choice is not None:
            texts = (cost_text(choice["expected_cost"], unit), _time_and_place(choice))
        figures.append(PlanFigure(label, *texts))
    return tuple(figures)


def plan_tags(plan: MachinePlan, choice: Choice) -> tuple[str, ...]:
    """Return what a configuration is the best at: fastest, cheapest, within the budget, within the deadline."""
    picks = _picks(plan).items()
    return tuple(name for name, pick in picks if pick is not None and _is_same(pick, choice))


def _picks(plan: MachinePlan) -> dict[str, Choice | None]:
    best = plan.recommendations
    picks: dict[str, Choice | None] = {"fastest": best.fastest, "cheapest": best.cheapest}
    for device, own in plan.by_device.items():
        for name, choice in (("fastest", own.fastest), ("cheapest", own.cheapest)):
            if not _is_same(picks[name] or {}, choice):
                picks[f"{name} on {device}"] = choice
    return picks | {"best within budget": best.within_budget, "best within deadline": best.within_deadline}


def _rows(plan: MachinePlan, most: int) -> tuple[PlanRow, ...]:
    table = plan.table.with_row_index("place")
    chosen = table.sort("on_front", "place", descending=[True, False]).head(most).sort("place").drop("place")
    rows = chosen.to_dicts()
    for choice in _picks(plan).values():  # a pick is always shown, however many configurations there are
        if choice is not None and not any(_is_same(row, choice) for row in rows):
            rows.append(choice)
    return tuple(_row(choice, plan.unit, plan_tags(plan, choice)) for choice in rows)


def _row(choice: Choice, unit: str, tags: tuple[str, ...]) -> PlanRow:
    low, high = choice["expected_time_low_s"], choice["expected_time_high_s"]
    cells = (
        place_text(choice),
        size_text(choice),
        whole_text(choice["steps"]),
        duration(choice["expected_time_s"]),
        "" if low is None or high is None else f"{duration(low)} to {duration(high)}",
        cost_text(choice["expected_cost"], unit),
        ", ".join(tags),
    )
    details = {
        "metaparameters": settings_text(choice),
        "step time": "" if choice["step_time_from"] == MEASURED else str(choice["step_time_from"]),
        "memory": memory_text(choice),
        "runs that reached the goal": ""
        if choice["success_rate"] >= 1
        else f"{choice['successes']:,} of {choice['attempts']:,}; the others are counted in time and cost",
        "efficiency": "" if choice["efficiency"] is None else share_text(choice["efficiency"]),
    }
    return PlanRow(cells, tags, tuple((name, text) for name, text in details.items() if text))


def _is_same(first: Choice, second: Choice) -> bool:
    return all(first.get(name) == value for name, value in second.items())


def _short(choice: Choice) -> str:
    return f"{place_text(choice)} with a batch of {size_text(choice)}"


def _both(choice: Choice, unit: str) -> str:
    return f"{duration(choice['expected_time_s'])} and {cost_text(choice['expected_cost'], unit)}"


def _cost_and_place(choice: Choice, unit: str) -> str:
    return f"{cost_text(choice['expected_cost'], unit)} · batch size {size_text(choice)} · {place_text(choice)}"


def _time_and_place(choice: Choice) -> str:
    return f"{duration(choice['expected_time_s'])} · batch size {size_text(choice)} · {place_text(choice)}"
