"""One number with its interval: what every fact of a curve is given as."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A value and the ends of its interval; None at an end that nothing bounds, or where there is no value."""

    value: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def has_interval(self) -> bool:
        """Whether one end at least is bounded."""
        return self.low is not None or self.high is not None


def holding(value: float | None, low: float | None, high: float | None) -> Estimate:
    """An estimate whose interval holds its value, wherever the interval came from.

    >>> holding(3.0, 1.0, 2.0)
    Estimate(value=3.0, low=1.0, high=3.0)
    """
    if value is None:
        return Estimate(None, low, high)
    return Estimate(value, None if low is None else min(low, value), None if high is None else max(high, value))
