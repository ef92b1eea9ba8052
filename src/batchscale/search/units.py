"""Conversion between the unit interval and the values of a metaparameter.

DOUBLE: u in [0, 1] maps to the range, uniformly in value (LINEAR), in log(value) (LOG) or in log(1 - value)
(REVERSE_LOG, growing with the value). INTEGER: the range is cut into one cell per whole number on its scale.
DISCRETE: one equal cell per feasible point.
"""

import math

from batchscale.spec.space import ParameterConfig, ParameterType, Scale


def to_value(config: ParameterConfig, unit: float) -> float:
    """Return the value of a metaparameter at a point of the unit interval.

    >>> from batchscale.spec import ParameterType, Scale
    >>> momentum = ParameterConfig("momentum", ParameterType.DOUBLE, 0.9, 0.9999, Scale.REVERSE_LOG)
    >>> round(to_value(momentum, 2 / 3), 12)
    0.999
    """
    unit = min(max(unit, 0.0), 1.0)
    if config.type is ParameterType.DISCRETE:
        points = config.feasible_points
        return points[min(int(unit * len(points)), len(points) - 1)]
    if config.type is ParameterType.INTEGER:
        value = float(math.floor(_from_scale(config.scale, unit, config.min_value, config.max_value + 1)))
    else:
        value = _from_scale(config.scale, unit, config.min_value, config.max_value)
    return float(min(max(value, config.min_value), config.max_value))


def to_unit(config: ParameterConfig, value: float) -> float:
    """Return the point of the unit interval for a value: the middle of its cell for INTEGER and DISCRETE.

    A value outside the range gives a point outside the unit interval (NaN where the scale ends, or for a value that
    is no feasible point).
    """
    if config.type is ParameterType.DISCRETE:
        points = config.feasible_points
        return (points.index(value) + 0.5) / len(points) if value in points else math.nan
    if config.type is ParameterType.INTEGER:
        low, high = config.min_value, config.max_value + 1
        return (_to_scale(config.scale, value, low, high) + _to_scale(config.scale, value + 1, low, high)) / 2
    return _to_scale(config.scale, value, config.min_value, config.max_value)


def _from_scale(scale: Scale, unit: float, low: float, high: float) -> float:
    if scale is Scale.LOG:
        return math.exp(math.log(low) + unit * (math.log(high) - math.log(low)))
    if scale is Scale.REVERSE_LOG:
        # log1p and expm1 keep the digits of 1 - value for momentum near 0 and near 1 alike.
        far, near = math.log1p(-low), math.log1p(-high)
        return -math.expm1(far + unit * (near - far))
    return low + unit * (high - low)


def _to_scale(scale: Scale, value: float, low: float, high: float) -> float:
    if low == high:
        return 0.5
    if scale is Scale.LOG:
        return math.log(value / low) / math.log(high / low) if value > 0 else math.nan
    if scale is Scale.REVERSE_LOG:
        far, near = math.log1p(-low), math.log1p(-high)
        return (math.log1p(-value) - far) / (near - far) if value < 1 else math.nan
    return (value - low) / (high - low)
