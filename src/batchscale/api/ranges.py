"""Ranges of metaparameters for ``measure``: on a linear or logarithmic scale, or a choice of values."""

from numbers import Integral, Real
from typing import Any

from batchscale.errors import SpecError, one_line
from batchscale.spec.space import ParameterConfig, ParameterType, Scale, check_bounds


class Range:
    """The values that ``measure`` searches for one metaparameter. ``log``, ``linear`` and ``choice`` make one."""

    def __init__(self, text: str, **config: Any) -> None:
        self._text = text
        self.config = config
        check_bounds(ParameterConfig.from_json(text, config))

    def __repr__(self) -> str:
        return self._text


def log(low: float, high: float, *, integer: bool = False) -> Range:
    """Return a range whose logarithm is searched evenly: for learning rates and everything else that spans decades.

    >>> log(1e-4, 1.0)
    log(0.0001, 1)
    """
    return _between("log", low, high, Scale.LOG, integer)


def linear(low: float, high: float, *, integer: bool = False) -> Range:
    """Return a range that is searched evenly.

    >>> linear(1, 8, integer=True)
    linear(1, 8, integer=True)
    """
    return _between("linear", low, high, Scale.LINEAR, integer)


def reverse_log(low: float, high: float) -> Range:
    """Return a range in which the logarithm of the distance to 1 is searched evenly: for momentum, below 1.

    >>> reverse_log(0.5, 0.999)
    reverse_log(0.5, 0.999)
    """
    return _between("reverse_log", low, high, Scale.REVERSE_LOG, False)


def choice(*values: float) -> Range:
    """Return a choice of numbers.

    >>> choice(0.0, 0.9, 0.99)
    choice(0, 0.9, 0.99)
    """
    points = sorted(float(_check(value, "choice")) for value in values)
    text = f"choice({', '.join(f'{value:g}' for value in points)})"
    return Range(text, type=ParameterType.DISCRETE.value, feasible_points=points)


def _between(name: str, low: float, high: float, scale: Scale, integer: bool) -> Range:
    ends = (_check(low, name), _check(high, name))
    text = f"{name}({low:g}, {high:g}{', integer=True' if integer else ''})"
    kind = ParameterType.INTEGER if integer else ParameterType.DOUBLE
    return Range(text, type=kind.value, scale=scale.value, min_value=ends[0], max_value=ends[1])


def _check(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):  # also numbers of NumPy
        raise SpecError(f"batchscale.{name} takes numbers, such as {name}(0.001, 1.0). Found {one_line(repr(value))}.")
    return int(value) if isinstance(value, Integral) else float(value)
