"""Check every number and claim in the text of an answer against the measured points.

The checker knows the forms that a sentence may have (``FORMS``), in which every number is a named field. A sentence of
another form is an error, and so is a number that no field reads: nothing that is printed goes unchecked. Each claim is
then computed again from the rows that the answer was made from (``answer_checks.py``).
"""

import re
from collections.abc import Mapping
from typing import Any

from answer_checks import (
    Check,
    Fields,
    Points,
    Rows,
    check_already,
    check_basis,
    check_bump,
    check_change,
    check_close,
    check_critical,
    check_failed,
    check_largest_cheapest,
    check_misfit,
    check_open_end,
    check_optimal,
    check_plateau,
    check_power,
    check_rise,
    check_small,
    check_spacing,
    check_use,
)

NUMBER = r"-?[\d,]*\.?\d+(?: M| billion| trillion)?"
LISTED = r"[\d,]+(?:, [\d,]+)*(?: and [\d,]+(?: more)?)?"
UNITS = {"M": 1e6, "billion": 1e9, "trillion": 1e12}
CLEAR = 1.1  # omissions of less than this are no error


def check_answer(sentences: tuple[str, ...] | list[str], rows: Rows) -> list[str]:
    """Return what is wrong with an answer, as "kind: explanation"; empty if every number and claim holds."""
    points, wrong, read = Points.of(rows), [], {}
    for sentence in sentences:
        matches = [(name, found) for name, (form, _) in FORMS.items() if (found := form.fullmatch(sentence))]
        if not matches:
            wrong.append(f"unread: {sentence}")
            continue
        name, found = matches[0]
        spans = [found.span(group) for group in found.re.groupindex if found.group(group) is not None]
        wrong += [
            f"unread: the number {number.group()} in: {sentence}"
            for number in re.finditer(r"\d+", sentence.replace("β2", "β "))
            if not any(start <= number.start() and number.end() <= end for start, end in spans)
        ]
        fields = {key.rstrip("_"): _value(key, text) for key, text in found.groupdict().items() if text is not None}
        read[name] = fields
        wrong += [f"{name}: {text}" for text in FORMS[name][1](fields, points)]
    return wrong + _omissions(read, points)


def _value(key: str, text: str) -> Any:
    if key.startswith("list"):
        return [int(part.replace(",", "")) for part in re.findall(r"[\d,]*\d", text)]
    if not re.fullmatch(NUMBER, text):
        return text
    digits, _, unit = text.replace(",", "").partition(" ")
    number = float(digits) * UNITS.get(unit, 1.0)
    return int(number) if number.is_integer() and "." not in digits and not unit else number


def _omissions(read: Mapping[str, Fields], points: Points) -> list[str]:
    """Return what a reader must be told and is not: failed sizes, rising steps, expensive small sizes."""
    wrong = []
    if "refused" in read:
        return wrong
    rise = points.steps[points.largest] / min(points.steps.values())
    if rise >= CLEAR and not any(
        "ratio" in read.get(name, {}) and "fastest" in read[name] for name in ("rise", "plateau")
    ):
        wrong.append(f"omission: {points.largest} needs {rise:.2f} times the fewest steps")
    if points.failed and "failed" not in read:
        wrong.append(f"omission: {points.failed} failed")
    small = max(
        (points.examples(s) / points.examples(points.cheapest) for s in points.steps if s < points.cheapest),
        default=1.0,
    )
    if small > 1.31 and not {"small", "largest cheapest"} & set(read):
        wrong.append(f"omission: a smaller size needs {small:.2f} times the examples")
    if not {"critical", "misfit", "power"} & set(read):
        wrong.append("omission: nothing on the critical batch size")
    return wrong


def _number(name: str) -> str:
    return rf"(?P<{name}>{NUMBER})"


def _form(pattern: str, check: Check) -> tuple[re.Pattern[str], Check]:
    """Return a form: <name> is a number, <list> a list of sizes, <span> an interval in brackets that may be missing."""
    low, high = _number("low"), _number("high")
    span = rf"(?: \((?:{low} to {high}|at least {_number('low_')}|at most {_number('high_')})\))?"
    pattern = pattern.replace("<span>", span).replace("<list>", rf"(?P<list>{LISTED})")
    return re.compile(re.sub(r"(?<!\?P)<(\w+)>", lambda name: _number(name.group(1)), pattern)), check


ROLE = "<reference>, the (?P<role>cheapest|smallest) size"
RISE = (
    r"bove <fastest> steps rise: <risen> needed <ratio> times as many(?:, which may be noise)?\.(?: Do not go there\.)?"
)
WHERE = "(?:; measure (?P<where>smaller|larger|smaller and larger) batch sizes to bound it)?"
MOVED = "(?:did not change|(?P<moved>fell|rose) by <percent> %)"
FORMS = {
    "use": _form(
        "Use (?:up to batch size <end>|batch sizes <first> to <end_>)<span>"
        "(?:, except <list>, where the goal was not reached,)?"
        f" at (?:little extra cost: at most <share> % more examples than|no extra cost over) {ROLE}"
        r"(?:; <largest> needed <times> times as many)?\.",
        check_use,
    ),
    "already": _form(
        rf"Already <size> needed <ratio> times the examples of {ROLE}(?:, and <largest> <times> times)?\.",
        check_already,
    ),
    "open end": _form(
        r"Perfect scaling \(twice the batch, half the steps, within <share> %\) ends somewhere between batch size "
        r"<low> and <high>; the noise is too large to say where\. As measured, <largest> needed <times> times "
        rf"the examples of {ROLE}\.",
        check_open_end,
    ),
    "close": _form(
        r"Batch sizes <first> to <end> lie too close together to tell how steps scale between them\.", check_close
    ),
    "small": _form(
        r"Batch sizes below <below> cost more: <size> needed <ratio> times the examples of <cheapest>\. Something was "
        r"probably not tuned there, for example the learning rate or Adam's β2\.",
        check_small,
    ),
    "largest cheapest": _form(
        "The largest size, <cheapest>, needed the fewest examples; <size> needed <ratio> times as many: the small "
        r"sizes were probably tuned less well\.",
        check_largest_cheapest,
    ),
    "plateau": _form(
        "Above <useful><span> (?:a larger batch saves at most <share> % of the steps|no larger batch saved steps)"
        rf"(?: \(measured up to <largest>\)\.|; a{RISE})",
        check_plateau,
    ),
    "rise": _form(f"A{RISE}", check_rise),
    "change": _form(
        f"From <smaller> to <larger>, the largest size measured, steps {MOVED}"
        r"(?:; fitted curves allow a fall of <law_low> %(?: to <law_high> %)?)?\."
        r"(?: Larger sizes may be faster still: measure <next>\.| Measure <next_> to see if steps fall further\."
        r"| The goal was not reached at <list>\.| Evaluate more often to see if steps still fall\."
        r"| Two sizes do not show where steps stop falling: measure more batch sizes\.)",
        check_change,
    ),
    "critical": _form(
        "(?:Critical batch size, where the curve bends: (?:about <value><span>|(?:about <value_>, )?"
        rf"(?:at least <low__>|at most <high__>)|<low___> to <high___>){WHERE}"
        rf"|These points do not bound the critical batch size{WHERE.replace('where', 'where_')}"
        r"|Two points give no critical batch size; measure more batch sizes)\.",
        check_critical,
    ),
    "power": _form(
        "At all sizes measured twice the batch saves about <saved> % of the steps, without a bend: these points have "
        r"no critical batch size\.",
        check_power,
    ),
    "misfit": _form(
        r"No curve of the fitted kinds describes these points \(the closest is <error> % off on average\): do not use "
        r"a critical batch size\.",
        check_misfit,
    ),
    "optimal": _form(
        "Fewest examples by the fitted curve: at batch size <value><span>; from <from> to <to> it needs at most "
        r"<share> % more\.",
        check_optimal,
    ),
    "failed": _form(r"Doubt: (?P<what>the goal was not reached) at batch size <list>\.", check_failed),
    "partly": _form(
        r"Doubt: (?P<what>runs that did not reach the goal are left out) at batch size <list>\.", check_failed
    ),
    "spacing": _form(
        "Doubt: the steps are known only to within their evaluation spacing at batch size <list>"
        rf"(?: \(at (?P<list_first>{LISTED}) the first measurement had reached the goal already\))?: evaluate every "
        r"<every> steps there\.",
        check_spacing,
    ),
    "bump": _form(
        "Doubt: batch size <larger> needed <ratio> times the steps of <smaller>: by chance, or it was tuned less "
        r"well\.",
        check_bump,
    ),
    "basis": _form(
        "In brackets: <level> % intervals(?:, from the spread of the repeated runs|, from how far the points lie off "
        r"the fitted curve| for an assumed noise of <noise> %, as three points give no estimate of it)\.",
        check_basis,
    ),
}
