"""A plan as sentences, each a pure function of the plan."""

import re

import polars as pl

from batchscale.analysis.sentences import optimal_sentence
from batchscale.analysis.units import SizeUnit
from batchscale.formatting import duration, metaparameter_text
from batchscale.planning.first_measurement import STEPS, FirstMeasurement
from batchscale.planning.more_devices import more_devices, stop_sentences
from batchscale.planning.plan import MachinePlan
from batchscale.planning.recommend import Choice, NextMeasurement, PriceMargin, Recommendations
from batchscale.planning.step_model import ESTIMATED, EXTRAPOLATED, INTERPOLATED, StepModel

OVERLAPS_SHOWN = 4


def cost_text(cost: float, unit: str) -> str:
    """Return an amount and its unit: to cents, from 10 on with one decimal; a tiny one with two digits.

    >>> cost_text(43.873, "ML units"), cost_text(7.5, "USD"), cost_text(1234.5, "EUR"), cost_text(12345, "EUR")
    ('43.9 ML units', '7.50 USD', '1,234.5 EUR', '12,345 EUR')
    >>> cost_text(0.01234, "USD"), cost_text(0.0001234, "USD"), cost_text(1.18e-06, "USD"), cost_text(0.0, "USD")
    ('0.012 USD', '0.00012 USD', 'under 0.0001 USD', '0 USD')
    """
    if 0 < cost < 0.0001:
        return f"under 0.0001 {unit}"
    if cost < 0.0995:
        return f"{cost:.2g} {unit}"
    return f"{cost:,.2f} {unit}" if cost < 9.995 else f"{cost:,.{1 if cost < 9999.5 else 0}f} {unit}"


def settings_text(choice: Choice) -> str:
    """Return the metaparameters of a configuration in few digits; empty if there are none.

    >>> settings_text({"metaparameters": "learning_rate 0.472631, momentum 0.838998, optimizer adam"})
    'learning rate 0.47, momentum 0.84, optimizer adam'
    """
    parts = []
    for part in filter(None, (choice["metaparameters"] or "").split(", ")):
        name, _, value = part.rpartition(" ")
        parts.append(f"{name.replace('_', ' ')} {_rounded(value)}".strip())
    return ", ".join(parts)


def _rounded(value: str) -> str:
    try:
        return metaparameter_text(float(value), digits=2)
    except ValueError:
        return value


def share_text(share: float) -> str:
    """Return a share in per cent, with a decimal if it is small.

    >>> share_text(0.028), share_text(0.217)
    ('2.8 %', '22 %')
    """
    return f"{100 * share:.1f} %" if abs(share) < 0.0995 else f"{100 * share:.0f} %"


def machine_text(name: str, spot: bool) -> str:
    """Return a machine's name, marked if it is a spot machine.

    >>> machine_text("g4dn.xlarge", True), machine_text("aws g4dn.xlarge spot", True), machine_text("T4 x2", False)
    ('g4dn.xlarge, spot', 'aws g4dn.xlarge spot', 'T4 x2')
    """
    return f"{name}, spot" if spot and "spot" not in name.casefold() else name


def place_text(choice: Choice) -> str:
    """Return the hosts × devices of a configuration, and its machine.

    >>> place_text({"hosts": 4, "devices_per_host": 2, "device": "T4", "machine": "T4 x2", "spot": False})
    '4 hosts × 2 T4'
    >>> place_text({"hosts": 1, "devices_per_host": 1, "device": "T4", "machine": "g4dn.xlarge", "spot": True})
    'one T4 (g4dn.xlarge, spot)'
    """
    hosts, per_host, device = choice["hosts"], choice["devices_per_host"], choice["device"]
    is_unnamed = choice["machine"] == f"{device} x{per_host}"
    machine = "" if is_unnamed else f" ({machine_text(choice['machine'], choice['spot'])})"
    if hosts == 1 and per_host == 1:
        return f"one {device}{machine}"
    return f"{hosts} host{'s' if hosts > 1 else ''} × {per_host} {device}{machine}"


def size_text(choice: Choice) -> str:
    """Return the batch size of a configuration, in tokens if the tokens of an example are known.

    >>> size_text({"batch_size": 1024}), size_text({"batch_size": 1024, "tokens_per_example": 512})
    ('1,024', '524k tokens (1,024 sequences)')
    """
    return SizeUnit(choice.get("tokens_per_example")).size(choice["batch_size"])


def choice_text(choice: Choice, unit: str) -> str:
    """Return a configuration with its time and cost, and their uncertainty."""
    settings = f", {settings_text(choice)}" if choice["metaparameters"] else ""
    time, cost = choice["expected_time_s"], choice["expected_cost"]
    low, high = choice["expected_time_low_s"], choice["expected_time_high_s"]
    span = "" if low is None or high is None else f" ({duration(low)} to {duration(high)})"
    doubt = {
        INTERPOLATED: ", step time interpolated",
        EXTRAPOLATED: ", STEP TIME EXTRAPOLATED beyond what was timed",
        ESTIMATED: ", step time estimated",
    }.get(choice["step_time_from"], "")
    failed = choice["success_rate"]
    paid = "" if failed >= 1 else f", counting that {share_text(1 - failed)} of the runs fail"
    return (
        f"{place_text(choice)} with a batch of {size_text(choice)}{settings}: {duration(time)}{span}, "
        f"{cost_text(cost, unit)}{paid}{doubt}"
    )


def plan_sentences(plan: MachinePlan) -> list[str]:
    """Return all sentences of a plan, the most important first."""
    return [_capital(text) for text in _two(plan.recommendations, plan.unit)] + plan_notes(plan)


def plan_notes(plan: MachinePlan) -> list[str]:
    """Return what a plan says beyond the fastest and the cheapest of all configurations."""
    best = plan.recommendations
    sentences = [twice_sentence(best, plan.unit)]
    for device, device_best in plan.by_device.items():
        fastest, cheapest = _two(device_best, plan.unit)
        sentences.append(f"On {device} {fastest} {cheapest}")
    sentences += [*limit_sentences(plan), *overlap_sentences(plan)]
    if plan.first_measurement is not None:
        sentences.append(first_sentence(plan.first_measurement, plan))
    elif best.next_measurement is not None:
        sentences.append(measurement_sentence(best.next_measurement))
    picked = {best.fastest["machine"], best.cheapest["machine"]}
    sentences += stop_sentences(more_devices(plan.table.filter(pl.col("machine").is_in(picked))))
    if best.price_margin is not None:
        sentences.append(price_sentence(best.cheapest, best.price_margin))
    if plan.summary is not None:
        sentences += [text for text in (optimal_sentence(plan.summary),) if text]
    if plan.search is not None:
        sentences.append(
            f"Measuring the curve took {duration(plan.search.time_s)} of machine time and "
            f"{cost_text(plan.search.cost, plan.unit)}; with the cheapest set-up on top the whole is "
            f"{cost_text(plan.search.cost + best.cheapest['expected_cost'], plan.unit)}."
        )
    return sentences


def _two(best: Recommendations, unit: str) -> list[str]:
    return [
        f"the fastest is {choice_text(best.fastest, unit)}.",
        f"The cheapest is {choice_text(best.cheapest, unit)}.",
    ]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def twice_sentence(best: Recommendations, unit: str) -> str:
    """Return the time that doubling the money buys."""
    cheapest, twice = best.cheapest, best.twice_the_money
    saved = 1 - twice["expected_time_s"] / cheapest["expected_time_s"]
    if saved <= 0:
        return "Twice the money of the cheapest buys no time."
    return f"Twice the money of the cheapest buys {share_text(saved)} less time: {choice_text(twice, unit)}."


def limit_sentences(plan: MachinePlan) -> list[str]:
    """Return the best configurations within the budget and the deadline."""
    request, recommended, unit = plan.request, plan.recommendations, plan.unit
    sentences = []
    if request.budget is not None:
        limit = cost_text(request.budget, unit)
        best = recommended.within_budget
        sentences.append(
            f"Within {limit} the fastest is {choice_text(best, unit)}."
            if best
            else f"Nothing reaches the goal within {limit}; the cheapest costs "
            f"{cost_text(recommended.cheapest['expected_cost'], unit)}."
        )
    if request.deadline_s is not None:
        limit = duration(request.deadline_s)
        best = recommended.within_deadline
        sentences.append(
            f"Within {limit} the cheapest is {choice_text(best, unit)}.{_late(best, request.deadline_s)}"
            if best
            else f"Nothing reaches the goal within {limit}; the fastest takes "
            f"{duration(recommended.fastest['expected_time_s'])}."
        )
    return sentences


def _late(choice: Choice, deadline_s: float) -> str:
    high = choice["expected_time_high_s"]
    return "" if high is None or high <= deadline_s else " Its interval reaches beyond the deadline."


def overlap_sentences(plan: MachinePlan) -> list[str]:
    """Return the configurations whose intervals overlap those of the best."""
    best, sentences = plan.recommendations, []
    for others, word in ((best.as_fast, "fastest"), (best.as_cheap, "cheapest")):
        if others:
            names = "; ".join(_short(choice) for choice in others[:OVERLAPS_SHOWN])
            more = f"; and {len(others) - OVERLAPS_SHOWN:,} more" if len(others) > OVERLAPS_SHOWN else ""
            sentences.append(f"Within their intervals as good as the {word}: {names}{more}.")
    return sentences


def _short(choice: Choice) -> str:
    settings = f", {settings_text(choice)}" if choice["metaparameters"] else ""
    return f"{place_text(choice)} with a batch of {size_text(choice)}{settings}"


def measurement_sentence(measurement: NextMeasurement) -> str:
    """Return the effect of one more measurement."""
    choice = measurement.choice
    if measurement.kind == "step time":
        what = f"timing the step of {_short(choice)} ('batchscale calibrate')"
    else:
        what = f"another run with a batch of {size_text(choice)}"
    if measurement.after is None:
        return f"What is least sure: {what} would show how far such runs differ."
    ends = "would tell the two fastest apart" if measurement.settles else "would not yet tell the two fastest apart"
    if measurement.before == float("inf"):
        return f"What is least sure: {what} would replace a guess without an interval, and {ends}."
    return (
        f"What is least sure: {what} would narrow its interval from a factor of {measurement.before:.2f} to about "
        f"{measurement.after:.2f}, and {ends}."
    )


def first_sentence(first: FirstMeasurement, plan: MachinePlan) -> str:
    """Return the measurement to make before deciding by estimates: its price, and what it is worth."""
    by_time = plan.request.budget is not None
    saved = duration(first.saves) if by_time else cost_text(first.saves, plan.unit)
    worth = f" A better choice is expected to save {saved}." if first.saves > 0 else ""
    others = "" if first.elsewhere is None else f" and of others to at most {first.elsewhere:.2f}"
    return (
        f"Before you decide, time {STEPS} steps on {_short(first.choice)}: {duration(first.time_s)}, "
        f"{cost_text(first.cost, plan.unit)}. It narrows its step times from a factor of {first.before:.2f} to "
        f"{first.after:.2f}{others}.{worth}"
    )


def price_sentence(cheapest: Choice, margin: PriceMargin) -> str:
    """Return how far a price may move before another machine is cheaper."""
    falls = (
        "" if margin.fall is None else f", or that of {margin.rival['machine']} fall by {share_text(1 - margin.fall)}"
    )
    return (
        f"The price of {cheapest['machine']} may rise by {share_text(margin.rise - 1)}{falls}, before "
        f"{_short(margin.rival)} is cheaper."
    )


def model_sentences(model: StepModel) -> list[str]:
    """Return the form of a model of step times, and its errors."""
    terms = " + ".join(("latency", *(("per example",) if model.form.per_example else ()), *model.form.terms))
    count = len(model.times)
    sentences = [
        f"{model.device}: {count} measured step time{'s' if count > 1 else ''}, modelled as "
        f"{terms.replace('_', ' ')} ({model.form.overlap.value})"
    ]
    worst = model.worst_left_out
    if model.freedom > 0:
        sentences[0] += f", residuals within {share_text(float(abs(model.residuals).max()))}"
    sentences[0] += f", left out one by one within {share_text(worst)}." if worst is not None else "."
    if model.freedom <= 0:
        sentences.append(
            f"{model.device}: as many parameters as measurements, so the errors of the model are not known; time more "
            "configurations."
        )
    unsure = [p.name for p in model.parameters if not p.is_known] if model.freedom > 0 else []
    if unsure:
        sentences.append(f"{model.device}: these measurements do not determine {', '.join(unsure)}.")
    return sentences


def without_options(text: str) -> str:
    """Return a message without the options of the command line in brackets, for a page.

    >>> without_options("Give step times (--step-times FILE), or the work (--work FILE, or --model FILE).")
    'Give step times, or the work.'
    """
    return re.sub(r" \([^()]*--[a-z][^()]*\)", "", text)


def left_out_sentences(plan: MachinePlan) -> list[str]:
    """Return the configurations that were not considered, with the reasons."""
    return [f"Left out: {text}." for text in plan.left_out]
