"""A plan in words: sentences, each a pure function of what the plan found."""

from typing import Any

from batchscale.formatting import duration
from batchscale.planning.answers import Answers, Choice, NextMeasurement, PriceMargin
from batchscale.planning.plan import MachinePlan
from batchscale.planning.step_model import EXTRAPOLATED, INTERPOLATED, StepModel

OVERLAPS_SHOWN = 4


def cost_words(cost: float, unit: str) -> str:
    """An amount with three digits or one decimal, and its unit.

    >>> cost_words(43.873, "ML units"), cost_words(0.01234, "USD"), cost_words(1234.5, "EUR")
    ('43.9 ML units', '0.0123 USD', '1,234.5 EUR')
    """
    return f"{cost:,.1f} {unit}" if cost >= 10 else f"{cost:.3g} {unit}"


def share_words(share: float) -> str:
    """A share in per cent, with a decimal where it is small.

    >>> share_words(0.028), share_words(0.217)
    ('2.8 %', '22 %')
    """
    return f"{100 * share:.1f} %" if abs(share) < 0.0995 else f"{100 * share:.0f} %"


def machine_words(name: str, spot: bool) -> str:
    """A machine's name, which says of a spot one that it is.

    >>> machine_words("g4dn.xlarge", True), machine_words("aws g4dn.xlarge spot", True), machine_words("T4 x2", False)
    ('g4dn.xlarge, spot', 'aws g4dn.xlarge spot', 'T4 x2')
    """
    return f"{name}, spot" if spot and "spot" not in name.casefold() else name


def place_words(choice: Choice) -> str:
    """Where a configuration trains: hosts × devices, and the machine.

    >>> place_words({"hosts": 4, "devices_per_host": 2, "device": "T4", "machine": "T4 x2", "spot": False})
    '4 hosts × 2 T4'
    >>> place_words({"hosts": 1, "devices_per_host": 1, "device": "T4", "machine": "g4dn.xlarge", "spot": True})
    'one T4 (g4dn.xlarge, spot)'
    """
    hosts, per_host, device = choice["hosts"], choice["devices_per_host"], choice["device"]
    own = choice["machine"] == f"{device} x{per_host}"
    machine = "" if own else f" ({machine_words(choice['machine'], choice['spot'])})"
    if hosts == 1 and per_host == 1:
        return f"one {device}{machine}"
    return f"{hosts} host{'s' if hosts > 1 else ''} × {per_host} {device}{machine}"


def choice_words(choice: Choice, unit: str) -> str:
    """A configuration with its time and cost, and how sure they are."""
    settings = f", {choice['metaparameters']}" if choice["metaparameters"] else ""
    time, cost = choice["expected_time_s"], choice["expected_cost"]
    low, high = choice["expected_time_low_s"], choice["expected_time_high_s"]
    span = "" if low is None or high is None else f" ({duration(low)} to {duration(high)})"
    doubt = {
        INTERPOLATED: ", step time interpolated",
        EXTRAPOLATED: ", STEP TIME EXTRAPOLATED beyond what was timed",
    }.get(choice["step_time_from"], "")
    failed = choice["success_rate"]
    paid = "" if failed >= 1 else f", counting that {share_words(1 - failed)} of the runs fail"
    return (
        f"{place_words(choice)} with a batch of {choice['batch_size']:,}{settings}: {duration(time)}{span}, "
        f"{cost_words(cost, unit)}{paid}{doubt}"
    )


def plan_sentences(plan: MachinePlan) -> list[str]:
    """The whole answer, most wanted first."""
    sentences = []
    for device, answers in plan.by_device.items():
        sentences += [f"On {device} {text}" for text in _two(answers, plan.unit)[:1]] + _two(answers, plan.unit)[1:]
    opening = _two(plan.answers, plan.unit)
    over_all = "Over all devices " if plan.by_device else ""
    sentences += [_capital(over_all + opening[0]), opening[1], twice_sentence(plan.answers, plan.unit)]
    sentences += wish_sentences(plan)
    sentences += overlap_sentences(plan)
    if plan.answers.next_measurement is not None:
        sentences.append(measurement_sentence(plan.answers.next_measurement))
    if plan.answers.price_margin is not None:
        sentences.append(price_sentence(plan.answers.cheapest, plan.answers.price_margin))
    if plan.search is not None:
        sentences.append(
            f"Measuring the curve took {duration(plan.search.time_s)} of machine time and "
            f"{cost_words(plan.search.cost, plan.unit)}; with the cheapest set-up on top the whole is "
            f"{cost_words(plan.search.cost + plan.answers.cheapest['expected_cost'], plan.unit)}."
        )
    return sentences


def _two(answers: Answers, unit: str) -> list[str]:
    return [
        f"the fastest is {choice_words(answers.fastest, unit)}.",
        f"The cheapest is {choice_words(answers.cheapest, unit)}.",
    ]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def twice_sentence(answers: Answers, unit: str) -> str:
    """What doubling the money buys."""
    cheapest, twice = answers.cheapest, answers.twice_the_money
    saved = 1 - twice["expected_time_s"] / cheapest["expected_time_s"]
    if saved <= 0:
        return "Doubling the money from there buys no time."
    return f"Doubling the money from there buys {share_words(saved)} less time: {choice_words(twice, unit)}."


def wish_sentences(plan: MachinePlan) -> list[str]:
    """The answers to a budget and a deadline."""
    wishes, answers, unit = plan.wishes, plan.answers, plan.unit
    found = []
    if wishes.budget is not None:
        asked = cost_words(wishes.budget, unit)
        best = answers.within_budget
        found.append(
            f"Within {asked} the fastest is {choice_words(best, unit)}."
            if best
            else f"Nothing reaches the goal within {asked}; the cheapest costs "
            f"{cost_words(answers.cheapest['expected_cost'], unit)}."
        )
    if wishes.deadline_s is not None:
        asked = duration(wishes.deadline_s)
        best = answers.within_deadline
        found.append(
            f"Within {asked} the cheapest is {choice_words(best, unit)}.{_late(best, wishes.deadline_s)}"
            if best
            else f"Nothing reaches the goal within {asked}; the fastest takes "
            f"{duration(answers.fastest['expected_time_s'])}."
        )
    return found


def _late(choice: Choice, deadline_s: float) -> str:
    high = choice["expected_time_high_s"]
    return "" if high is None or high <= deadline_s else " Its interval reaches beyond the deadline."


def overlap_sentences(plan: MachinePlan) -> list[str]:
    """Which configurations cannot be told from the best."""
    found = []
    for others, word in ((plan.answers.as_fast, "fastest"), (plan.answers.as_cheap, "cheapest")):
        if others:
            shown = "; ".join(_short(choice) for choice in others[:OVERLAPS_SHOWN])
            more = f"; and {len(others) - OVERLAPS_SHOWN:,} more" if len(others) > OVERLAPS_SHOWN else ""
            found.append(f"Within their intervals as good as the {word}: {shown}{more}.")
    return found


def _short(choice: Choice) -> str:
    settings = f", {choice['metaparameters']}" if choice["metaparameters"] else ""
    return f"{place_words(choice)} with a batch of {choice['batch_size']:,}{settings}"


def measurement_sentence(found: NextMeasurement) -> str:
    """What one more measurement would do."""
    choice = found.choice
    if found.kind == "step time":
        what = f"timing the step of {_short(choice)} ('batchscale calibrate')"
    else:
        what = f"another run with a batch of {choice['batch_size']:,}"
    if found.after is None:
        return f"What is least sure: {what} would show how far such runs differ."
    ends = "would tell the two fastest apart" if found.settles else "would not yet tell the two fastest apart"
    if found.before == float("inf"):
        return f"What is least sure: {what} would replace a guess without an interval, and {ends}."
    return (
        f"What is least sure: {what} would narrow its interval from a factor of {found.before:.2f} to about "
        f"{found.after:.2f}, and {ends}."
    )


def price_sentence(cheapest: Choice, margin: PriceMargin) -> str:
    """How far a price may move before another machine wins."""
    falls = (
        "" if margin.fall is None else f", or that of {margin.rival['machine']} fall by {share_words(1 - margin.fall)}"
    )
    return (
        f"The price of {cheapest['machine']} may rise by {share_words(margin.rise - 1)}{falls}, before "
        f"{_short(margin.rival)} is cheaper."
    )


def model_sentences(model: StepModel) -> list[str]:
    """What the model of a device's step times is and how far to trust it."""
    terms = " + ".join(("latency", *(("per example",) if model.form.per_example else ()), *model.form.terms))
    count = len(model.times)
    found = [
        f"{model.device}: {count} measured step time{'s' if count > 1 else ''}, modelled as "
        f"{terms.replace('_', ' ')} ({model.form.overlap.value})"
    ]
    worst = model.worst_left_out
    if model.freedom > 0:
        found[0] += f", residuals within {share_words(float(abs(model.residuals).max()))}"
    found[0] += f", left out one by one within {share_words(worst)}." if worst is not None else "."
    if model.freedom <= 0:
        found.append(
            f"{model.device}: as many parameters as measurements, so nothing says how good the model is; time more "
            "configurations."
        )
    unsure = [p.name for p in model.parameters if not p.is_known] if model.freedom > 0 else []
    if unsure:
        found.append(f"{model.device}: these measurements do not determine {', '.join(unsure)}.")
    return found


def left_out_sentences(plan: MachinePlan) -> list[str]:
    """What was not considered, and why."""
    return [f"Left out: {text}." for text in plan.left_out]


def table_row(choice: dict[str, Any]) -> tuple[object, ...]:
    """A configuration as cells: machine, hosts, devices per host, batch, per device, time, interval, cost, notes."""
    low, high = choice["expected_time_low_s"], choice["expected_time_high_s"]
    span = None if low is None or high is None else f"{duration(low)} to {duration(high)}"
    notes = [
        "front" if choice["on_front"] else "",
        f"{choice['successes']} of {choice['attempts']} reached" if choice["success_rate"] < 1 else "",
        choice["step_time_from"] if choice["step_time_from"] != "measured" else "",
    ]
    efficiency = choice["efficiency"]
    return (
        machine_words(choice["machine"], choice["spot"]),
        choice["hosts"],
        choice["devices_per_host"],
        choice["batch_size"],
        choice["metaparameters"] or None,
        round(choice["steps"]),
        duration(choice["expected_time_s"]),
        span,
        f"{choice['expected_cost']:,.4g}",
        None if efficiency is None else share_words(efficiency),
        "; ".join(note for note in notes if note),
    )
