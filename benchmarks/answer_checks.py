"""The claims of an answer, each computed again from the measured points. It shares no code with the sentences."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Array = NDArray[np.float64]
Rows = list[tuple[int, float | None]]
ROUGHLY = 1.05  # a law fitted here may be closer by the coarseness of either fit
MISFIT = 0.3  # of log steps: a critical batch size of points that lie so far off is a false claim


@dataclass(frozen=True)
class Points:
    """The rows of a curve as the checker reads them: the geometric mean of the runs at a size, and failed sizes."""

    steps: dict[int, float]
    failed: tuple[int, ...]
    partly: tuple[int, ...]
    error: float = 0.0  # the standard error of a point's log steps, from the spread of repeated runs; 0 without any

    @classmethod
    def of(cls, rows: Rows) -> "Points":
        """Return the points of rows; steps None is a run that did not reach the goal."""
        sizes = sorted({size for size, _ in rows})
        runs = {size: [steps for other, steps in rows if other == size] for size in sizes}
        good = {size: [steps for steps in values if steps is not None] for size, values in runs.items()}
        steps = {size: math.exp(math.fsum(map(math.log, v)) / len(v)) for size, v in good.items() if v}
        failed = tuple(size for size in sizes if not good[size])
        partly = tuple(size for size in sizes if good[size] and len(good[size]) < len(runs[size]))
        spreads = [float(np.var(np.log(v), ddof=1)) for v in good.values() if len(v) > 1]
        counts = [len(v) for v in good.values() if v]
        error = math.sqrt(math.fsum(spreads) / len(spreads) / min(counts)) if spreads else 0.0
        return cls(steps, failed, partly, error)

    @property
    def largest(self) -> int:
        """The largest size that reached the goal."""
        return max(self.steps)

    def examples(self, size: int) -> float:
        """Return the examples to result."""
        return size * self.steps[size]

    @property
    def cheapest(self) -> int:
        """The size of fewest examples, the smaller of equals."""
        fewest = min(map(self.examples, self.steps))
        return min(size for size in self.steps if self.examples(size) <= fewest * (1 + 1e-9))


Fields = Mapping[str, Any]
Check = Callable[[Fields, Points], list[str]]


def _same(text: float, own: float) -> bool:
    """True if a printed ratio is its own number, rounded to its digits."""
    tolerance = 0.0051 if own < 1.995 else 0.051 if own < 9.95 else own * 0.051
    return abs(text - own) <= tolerance


def _span(fields: Fields, value: str = "value", low: str = "low", high: str = "high") -> list[str]:
    if value not in fields:
        return []
    ends = fields.get(low, -math.inf), fields.get(high, math.inf)
    if not ends[0] <= fields[value] <= ends[1]:
        return [f"{fields[value]} outside its interval {ends[0]} to {ends[1]}"]
    return []


def _times(points: Points, size: int, reference: int, text: float) -> list[str]:
    if size not in points.steps or reference not in points.steps:
        return [f"{size} or {reference} was not measured"]
    own = points.examples(size) / points.examples(reference)
    return [] if _same(text, own) else [f"{size} needed {own:.3f} times the examples of {reference}, not {text}"]


def _reference(fields: Fields, points: Points) -> list[str]:
    expected = points.cheapest if fields["role"] == "cheapest" else min(points.steps)
    return [] if fields["reference"] == expected else [f"{fields['reference']} is not the {fields['role']}, {expected}"]


def check_use(fields: Fields, points: Points) -> list[str]:
    """Check the recommended sizes: measured, reached, and no more expensive than stated."""
    end, reference = fields["end"], fields["reference"]
    first = fields.get("first", min(points.steps))
    wrong = _reference(fields, points) + _span(fields, "end")
    if {first, end, reference} - set(points.steps):
        return [*wrong, f"{first}, {end} or {reference} did not reach the goal"]
    share = fields.get("share", 0) / 100
    for size in points.steps:
        if first <= size <= end and points.examples(size) > points.examples(reference) * (1 + share) * (1 + 1e-6):
            wrong.append(f"{size} needed {points.examples(size) / points.examples(reference):.3f} times the examples")
    dearest = max(points.examples(size) for size in points.steps if first <= size <= end) / points.examples(reference)
    if share > 0.3 or share > dearest - 1 + 0.01:
        wrong.append(f"{share:.0%} is not little, or more than the {dearest - 1:.1%} measured")
    below = -1 if "first" not in fields else first
    hidden = [size for size in points.failed if below < size < end and size not in fields.get("list", [])]
    if hidden or set(fields.get("list", [])) - set(points.failed):
        wrong.append(f"recommended though failed: {hidden}, excepted: {fields.get('list')}")
    fewest = min(points.steps.values())
    if any(points.steps[size] == fewest and size < end and points.steps[end] > fewest for size in points.steps):
        wrong.append(f"{end} is recommended though a smaller size needed fewer steps")
    if "largest" in fields:
        wrong += _largest(fields, points) + _times(points, fields["largest"], reference, fields["times"])
    elif end != points.largest:
        wrong.append("the price of the largest size is missing")
    return wrong


def check_already(fields: Fields, points: Points) -> list[str]:
    """Check the price of the size after the cheapest."""
    following = min((size for size in points.steps if size > fields["reference"]), default=None)
    wrong = _reference(fields, points) + _times(points, fields["size"], fields["reference"], fields["ratio"])
    wrong += [] if following == fields["size"] else [f"the next size is {following}"]
    if "largest" in fields:
        wrong += _largest(fields, points) + _times(points, fields["largest"], fields["reference"], fields["times"])
    return wrong


def check_open_end(fields: Fields, points: Points) -> list[str]:
    """Check an end of perfect scaling that is not determined: the measured end lies between the sizes."""
    first = end = fields["reference"]
    wrong = _reference(fields, points) + _largest(fields, points)
    wrong += _times(points, fields["largest"], first, fields["times"])
    if wrong:
        return wrong
    for size in sorted(size for size in points.steps if size > first):
        if points.examples(size) > points.examples(first) * (1 + fields["share"] / 100) * (1 + 1e-9):
            break
        end = size
    low, high = fields["low"], fields["high"]
    if fields["share"] != 30:
        return ["not the tolerance"]
    if {low, high} - set(points.steps) or low >= high:
        return [f"{low} and {high} are no two measured sizes"]
    return [] if low <= end <= high else [f"the measured end is {end}"]


def check_close(fields: Fields, points: Points) -> list[str]:
    """Check sizes that are said to lie close together."""
    first, end = fields["first"], fields["end"]
    return (
        [] if {first, end} <= set(points.steps) and first < end <= 1.3 * first else [f"{first} to {end} is not close"]
    )


def check_small(fields: Fields, points: Points) -> list[str]:
    """Check what small sizes are said to cost."""
    cheapest = fields["cheapest"]
    wrong = _times(points, fields["size"], cheapest, fields["ratio"])
    if cheapest != points.cheapest:
        return [*wrong, f"the cheapest size is {points.cheapest}"]
    limit = fields.get("below", cheapest)
    if limit not in points.steps:
        wrong.append(f"{limit} did not reach the goal")
    if not fields["size"] < limit or any(
        points.examples(size) <= points.examples(cheapest) for size in points.steps if size < limit
    ):
        wrong.append(f"not every size below {limit} costs more")
    return wrong


def check_largest_cheapest(fields: Fields, points: Points) -> list[str]:
    """Check the largest size as the cheapest."""
    return _largest(fields, points, "cheapest") + check_small(fields, points)


def check_plateau(fields: Fields, points: Points) -> list[str]:
    """Check that no larger measured size saved more than is said, and a rise behind it."""
    useful = fields["useful"]
    wrong = _span(fields, "useful")
    if useful not in points.steps:
        return [*wrong, f"{useful} did not reach the goal"]
    larger = [steps for size, steps in points.steps.items() if size > useful]
    saved = 1 - min(larger, default=math.inf) / points.steps[useful]
    said = fields.get("share", 0) / 100
    if not larger or not said - 0.01 <= max(saved, 0) <= said + 1e-6:
        wrong.append(f"a size above {useful} saves {saved:.1%}")
    if "largest" in fields:
        wrong += _largest(fields, points)
    return wrong + (check_rise(fields, points) if "fastest" in fields else [])


def check_rise(fields: Fields, points: Points) -> list[str]:
    """Check that every size above one needed more steps, and the largest as many times as is said."""
    fastest, largest = fields["fastest"], fields["risen"]
    if fastest not in points.steps or largest != points.largest:
        return [f"{fastest} is not measured, or {largest} is not the largest"]
    wrong = []
    if any(steps <= points.steps[fastest] for size, steps in points.steps.items() if size > fastest):
        wrong.append(f"not every size above {fastest} needed more steps")
    ratio = points.steps[largest] / points.steps[fastest]
    return wrong if _same(fields["ratio"], ratio) else [*wrong, f"{largest} needed {ratio:.3f} times the steps"]


def check_change(fields: Fields, points: Points) -> list[str]:
    """Check the change of steps between two sizes as measured, and the sizes to measure next."""
    smaller, larger = fields["smaller"], fields["larger"]
    wrong = [] if larger == points.largest else [f"{larger} is not the largest size"]
    if {smaller, larger} - set(points.steps):
        return [*wrong, f"{smaller} or {larger} did not reach the goal"]
    fall = 100 * (1 - points.steps[larger] / points.steps[smaller])
    said = {"fell": 1, "rose": -1}.get(fields.get("moved", ""), 0) * fields.get("percent", 0)
    if abs(fall - said) > 0.51:
        wrong.append(f"steps fell by {fall:.1f} %, not {said}")
    if not 0 <= fields.get("law_low", 0) <= fields.get("law_high", 100) <= 100:
        wrong.append("the range of the laws is no range")
    if fields.get("next", 2 * larger) != 2 * larger or any(
        larger < size <= fields.get("next", 0) for size in points.failed
    ):
        wrong.append(f"measuring {fields.get('next')} is advised, after {points.failed} failed")
    if set(fields.get("list", [])) - set(points.failed):
        wrong.append(f"{fields['list']} did not all fail")
    return wrong


def check_critical(fields: Fields, points: Points) -> list[str]:
    """Check that B_crit lies in its interval, and that no measurement is advised that failed already."""
    wrong = _span(fields)
    if "larger" in fields.get("where", "") and any(size > points.largest for size in points.failed):
        wrong.append(f"larger sizes are advised, but {points.failed} failed")
    if "smaller" in fields.get("where", "") and any(size < min(points.steps) for size in points.failed):
        wrong.append(f"smaller sizes are advised, but {points.failed} failed")
    error = least_error(points) if "value" in fields else 0.0
    if error > max(MISFIT, 2 * points.error):  # points that scatter so much lie so far off any law by chance
        wrong.append(f"a number, though simple laws miss the points by {error:.2f}")
    low, high = min(points.steps), points.largest
    if not low / 8 <= fields.get("value", low) <= 8 * high:
        wrong.append(f"{fields['value']} lies far outside the measured sizes")
    return wrong


def check_misfit(fields: Fields, points: Points) -> list[str]:
    """Check that the best law is said to be no further off than laws that are fitted here."""
    own = math.expm1(least_error(points))
    if fields["error"] / 100 <= ROUGHLY * own + 0.005:
        return []
    return [f"a law fitted here is only {own:.0%} off"]


def least_error(points: Points) -> float:
    """Return the root mean square error, in log steps, of the best law of three simple kinds fitted here.

    A power law; examples a + b B + c/B, with and without c, by least squares of relative errors; and the contour of a
    loss that is a sum of powers, steps ∝ (1 - (B_min/B)^β)^(-1/γ), by a line for each B_min and β of a grid. A
    kind with nearly as many parameters as points proves nothing and is left out.
    """
    sizes = np.array(sorted(points.steps), dtype=float)
    logs = np.log([points.steps[int(size)] for size in sizes])
    shares = np.full(len(sizes), 1 / len(sizes))
    hyperbola = (1 / sizes, np.ones_like(sizes))
    errors = []
    for terms in (hyperbola, (*hyperbola, 1 / sizes**2))[: 1 if len(sizes) < 5 else 2]:
        columns = np.stack(terms, axis=1) / np.exp(logs)[:, None]
        scale, roots = columns.max(axis=0), np.sqrt(shares)
        law = columns / scale @ nnls(columns / scale * roots[:, None], roots)[0]
        if (law > 0).all():
            rest = np.log(law)
            errors.append(float(np.sqrt(shares @ (rest - shares @ rest) ** 2)))
    if len(sizes) > 3:
        errors.append(_line_error(-np.log(sizes)[None], logs, shares))
    if len(sizes) > 5:
        least, power = np.meshgrid(sizes[0] * np.geomspace(1e-3, 0.999, 60), np.geomspace(0.1, 6, 25))
        bends = -np.log1p(-((least.ravel()[:, None] / sizes) ** power.ravel()[:, None]))
        errors.append(_line_error(bends, logs, shares))
    return min(errors)


def _line_error(terms: Array, logs: Array, shares: Array) -> float:
    """Return the least error of the lines logs = a + b term, b ≥ 0, over rows of terms."""
    centred, rest = terms - (terms @ shares)[:, None], logs - shares @ logs
    slopes = np.maximum(centred @ (shares * rest) / np.maximum(centred**2 @ shares, 1e-300), 0.0)
    return float(np.sqrt((rest - slopes[:, None] * centred) ** 2 @ shares).min())


def check_power(fields: Fields, points: Points) -> list[str]:
    """Check what twice the batch saves in a curve without a bend, by a line through the points in logarithms."""
    sizes = np.array(sorted(points.steps), dtype=float)
    logs = np.log([points.steps[int(size)] for size in sizes])
    covariance = np.cov(np.log(sizes), logs)
    saved = 100 * (1 - 2 ** (covariance[0, 1] / covariance[0, 0]))
    return [] if abs(saved - fields["saved"]) <= 0.51 else [f"twice the batch saves {saved:.1f} % here"]


def check_optimal(fields: Fields, points: Points) -> list[str]:
    """Check B_opt: in its interval and band, between the measured sizes, and about as cheap as the cheapest of them."""
    wrong = _span(fields) + _span(fields, "value", "from", "to")
    wrong += [] if fields["share"] == 5 else ["not the tolerance"]
    sizes = sorted(points.steps)
    if not sizes[0] * 0.99 <= fields["from"] <= fields["to"] <= sizes[-1] * 1.01:
        wrong.append("the band leaves the measured sizes")
    left = max((size for size in sizes if size <= fields["value"]), default=sizes[0])
    right = min((size for size in sizes if size >= fields["value"]), default=sizes[-1])
    least = min(map(points.examples, sizes))
    if min(points.examples(left), points.examples(right)) > 1.5 * least:
        wrong.append(f"the sizes beside {fields['value']} need 1.5 times the fewest examples")
    return wrong


def check_failed(fields: Fields, points: Points) -> list[str]:
    """Check the sizes that are said to have failed."""
    own = points.failed if fields["what"] == "the goal was not reached" else points.partly
    same = fields["list"] == list(own) or len(own) > 6
    return [] if same else [f"{own} failed, not {fields['list']}"]


def check_spacing(fields: Fields, points: Points) -> list[str]:
    """Check the sizes whose steps are known only roughly, and the spacing that would resolve them: a twentieth."""
    sizes = [*fields["list"], *fields.get("list_first", [])]
    if set(sizes) - set(points.steps):
        return [f"not all of {sizes} reached the goal"]
    every = min(points.steps[size] for size in fields["list"]) / 20
    return [] if abs(fields["every"] - every) <= 1.05 else [f"a twentieth of the steps is {every:.1f}"]


def check_bump(fields: Fields, points: Points) -> list[str]:
    """Check a size that needed more steps than a smaller one."""
    if {fields["larger"], fields["smaller"]} - set(points.steps):
        return [f"{fields['larger']} or {fields['smaller']} did not reach the goal"]
    ratio = points.steps[fields["larger"]] / points.steps[fields["smaller"]]
    return [] if _same(fields["ratio"], ratio) else [f"{fields['larger']} needed {ratio:.3f} times the steps"]


def check_basis(fields: Fields, points: Points) -> list[str]:
    """Check level and assumed noise."""
    wrong = [] if fields["level"] == 90 else ["not the level of the intervals"]
    return wrong if "noise" not in fields or (fields["noise"] == 20 and len(points.steps) == 3) else [*wrong, "noise"]


def _largest(fields: Fields, points: Points, key: str = "largest") -> list[str]:
    return [] if fields[key] == points.largest else [f"{fields[key]} is not the largest size, {points.largest}"]
