"""The search space: one parameter config per metaparameter, exactly as the published ``study.json`` has them.

Owns the rules of a config, its JSON form, and the natural bounds of metaparameters: the values that are possible on any
workload, which limit a space when it is written and when the edge guard moves it. Converting points of the unit cube to
values is in ``search``.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

from batchscale.errors import SpecError, one_line, suggest_names

MAX_FEASIBLE_POINTS = 10_000
SMALLEST, LARGEST = 1e-37, 1e37  # of a metaparameter: 32-bit numbers with all their digits, and room to multiply
MAX_METAPARAMETERS = 100  # of one search or trial
CONFIG_KEYS = ("type", "scale", "min_value", "max_value", "feasible_points")

_E = TypeVar("_E", bound=StrEnum)


class ParameterType(StrEnum):
    """The kind of values that a metaparameter takes."""

    DOUBLE = "DOUBLE"
    INTEGER = "INTEGER"
    DISCRETE = "DISCRETE"


class Scale(StrEnum):
    """The coordinate in which a range is sampled uniformly."""

    LINEAR = "LINEAR_SCALE"
    LOG = "LOG_SCALE"
    REVERSE_LOG = "REVERSE_LOG_SCALE"


@dataclass(frozen=True)
class ParameterConfig:
    """The range of one metaparameter (DOUBLE, INTEGER) or its feasible points (DISCRETE).

    Raises:
        SpecError: the range is empty, not finite, or impossible on its scale.
    """

    name: str
    type: ParameterType
    min_value: float = math.nan
    max_value: float = math.nan
    scale: Scale = Scale.LINEAR
    feasible_points: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "min_value", float(self.min_value))
        object.__setattr__(self, "max_value", float(self.max_value))
        if self.type is ParameterType.DISCRETE:
            self._check_points()
        else:
            self._check_range()

    def _check_points(self) -> None:
        points = self.feasible_points
        if not points or len(points) > MAX_FEASIBLE_POINTS:
            raise self._wrong(f"DISCRETE needs between 1 and {MAX_FEASIBLE_POINTS} feasible_points", len(points))
        if any(not math.isfinite(point) for point in points):
            raise self._wrong("feasible_points must be finite numbers", points)
        if len(set(points)) != len(points):
            raise self._wrong("feasible_points must differ from each other", points)

    def _check_range(self) -> None:
        low, high = self.min_value, self.max_value
        range_text = f"{low:.12g} to {high:.12g}"
        if not (math.isfinite(low) and math.isfinite(high)):
            raise self._wrong(f"{self.type} needs a finite min_value and max_value", range_text)
        if low > high:
            raise self._wrong("min_value must not be above max_value", range_text)
        if self.type is ParameterType.INTEGER and not (low.is_integer() and high.is_integer()):
            raise self._wrong("the range of an INTEGER must be whole numbers", range_text)
        if self.scale is Scale.LOG and low <= 0:
            raise self._wrong("LOG_SCALE needs min_value > 0", range_text)
        if self.scale is Scale.REVERSE_LOG and high >= 1:
            raise self._wrong("REVERSE_LOG_SCALE samples log(1 - value) and needs max_value < 1", range_text)
        if self.scale is Scale.REVERSE_LOG and self.type is ParameterType.INTEGER:
            raise self._wrong("REVERSE_LOG_SCALE is for DOUBLE", self.type)

    def _wrong(self, rule: str, value: object) -> SpecError:
        return SpecError(f"Metaparameter '{one_line(self.name)}': {rule}. Found {one_line(value)}.")

    @classmethod
    def from_json(cls, name: str, config: object) -> "ParameterConfig":
        """Parse the config of one metaparameter from its published JSON form."""
        where = f"Metaparameter '{one_line(name)}'"
        if not isinstance(config, Mapping):
            raise SpecError(f"{where}: a parameter config must be a table of keys. Found {one_line(repr(config))}.")
        for key in config:
            if key not in CONFIG_KEYS:
                raise SpecError(f"{where}: unknown key {one_line(repr(key))}; {suggest_names(str(key), CONFIG_KEYS)}")
        kind = _member(ParameterType, config.get("type", ParameterType.DOUBLE), where, "type")
        scale_text = config.get("scale") or Scale.LINEAR
        return cls(
            name=name,
            type=kind,
            min_value=_number(config.get("min_value", math.nan), where, "min_value"),
            max_value=_number(config.get("max_value", math.nan), where, "max_value"),
            scale=_member(Scale, scale_text, where, "scale"),
            feasible_points=_points(config.get("feasible_points", ()), where),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the published JSON form; whole numbers stay whole for INTEGER."""
        if self.type is ParameterType.DISCRETE:
            return {"feasible_points": list(self.feasible_points), "type": self.type.value}
        whole = self.type is ParameterType.INTEGER
        linear = whole and self.scale is Scale.LINEAR
        return {
            "max_value": int(self.max_value) if whole else self.max_value,
            "min_value": int(self.min_value) if whole else self.min_value,
            "scale": "" if linear else self.scale.value,
            "type": self.type.value,
        }

    def contains(self, value: float) -> bool:
        """True if the value lies in the range (or is a feasible point), ends included."""
        if self.type is ParameterType.DISCRETE:
            return value in self.feasible_points
        inside = self.min_value <= value <= self.max_value
        return inside and (self.type is ParameterType.DOUBLE or float(value).is_integer())


@dataclass(frozen=True)
class SearchSpace:
    """The metaparameters tuned in a study, in the order of their names."""

    parameters: tuple[ParameterConfig, ...] = ()

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.parameters, key=lambda config: config.name))
        object.__setattr__(self, "parameters", ordered)
        names = self.names
        if len(names) > MAX_METAPARAMETERS:
            raise SpecError(f"A search space has at most {MAX_METAPARAMETERS} metaparameters. Found {len(names):,}.")
        if len(set(names)) != len(names):
            raise SpecError(f"A search space must name each metaparameter once. Found {one_line(names)}.")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tuned metaparameters."""
        return tuple(config.name for config in self.parameters)

    def __iter__(self) -> Iterator[ParameterConfig]:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    def __getitem__(self, name: str) -> ParameterConfig:
        for config in self.parameters:
            if config.name == name:
                return config
        raise SpecError(f"The space has no metaparameter '{one_line(name)}'; {suggest_names(name, self.names)}")

    def __contains__(self, name: object) -> bool:
        return name in self.names

    @classmethod
    def from_json(cls, configs: object) -> "SearchSpace":
        """Parse the space from the published ``parameter_configs`` object."""
        if not isinstance(configs, Mapping):
            raise SpecError(f"A search space must be a table of metaparameters. Found {one_line(repr(configs))}.")
        return cls(tuple(ParameterConfig.from_json(str(name), config) for name, config in configs.items()))

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return the published ``parameter_configs`` object."""
        return {config.name: config.to_json() for config in self.parameters}

    def replace(self, *configs: ParameterConfig) -> "SearchSpace":
        """Return the space with some configs exchanged or added."""
        changed = {config.name: config for config in self.parameters} | {config.name: config for config in configs}
        return SearchSpace(tuple(changed.values()))

    def without(self, *names: str) -> "SearchSpace":
        """Return the space without some metaparameters."""
        return SearchSpace(tuple(config for config in self.parameters if config.name not in names))


def _member(kind: type[_E], text: object, where: str, key: str) -> _E:
    values = [member.value for member in kind]
    if text not in values:
        raise SpecError(f"{where}: {key} must be one of {', '.join(values)}. Found {one_line(repr(text))}.")
    return kind(str(text))


def _number(value: object, where: str, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(f"{where}: {key} must be a number. Found {one_line(repr(value))}.")
    try:
        return float(value)
    except OverflowError:
        raise SpecError(f"{where}: {key} must fit a float. Found {one_line(repr(value))}.") from None


def _points(values: object, where: str) -> tuple[float, ...]:
    if not isinstance(values, list | tuple):
        raise SpecError(f"{where}: feasible_points must be a list of numbers. Found {one_line(repr(values))}.")
    return tuple(_number(value, where, "feasible_points") for value in values)


@dataclass(frozen=True)
class Bounds:
    """An interval; each end belongs to it unless it is open."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    def contains(self, value: float) -> bool:
        """True if the value is allowed."""
        above = value > self.low if self.low_open else value >= self.low
        below = value < self.high if self.high_open else value <= self.high
        return above and below

    def __str__(self) -> str:
        return f"{'(' if self.low_open else '['}{self.low:g}, {self.high:g}{')' if self.high_open else ']'}"


_POSITIVE = Bounds(0, math.inf, low_open=True)
_NOT_NEGATIVE = Bounds(0, math.inf)
_BELOW_ONE = Bounds(0, 1, high_open=True)

_BOUNDS = {
    "learning_rate": _POSITIVE,
    "end_learning_rate_factor": Bounds(0, 1, low_open=True),
    "learning_rate_decay_steps": Bounds(1, math.inf),
    "learning_rate_decay_power": _POSITIVE,
    "momentum": _BELOW_ONE,
    "beta1": _BELOW_ONE,
    "beta2": _BELOW_ONE,
    "epsilon": _POSITIVE,
    "momentum_half_life": _POSITIVE,
    "beta1_half_life": _POSITIVE,
    "beta2_half_life": _POSITIVE,
    "weight_decay": _NOT_NEGATIVE,
    "l2_penalty": _NOT_NEGATIVE,
    "label_smoothing": _BELOW_ONE,
    "gradient_clip_norm": _POSITIVE,
    "averaging_half_life": _POSITIVE,
}


_HALF_LIVES = {"momentum_half_life": "momentum", "beta1_half_life": "beta1", "beta2_half_life": "beta2"}
_ALMOST_ONE = 1 - 2.0**-24  # in 32 bits: at 1 an average would stay at 0


def convert_half_lives(parameters: Mapping[str, float], tokens_per_step: float) -> dict[str, float]:
    """Return metaparameters with half-lives in tokens replaced by the decay factor of one step of so many tokens.

    An average with the factor β keeps half of what it holds after ``tokens_per_step·log(½)/log(β)`` tokens. Where the
    tokens of an example are unknown, half-lives count examples instead.

    >>> convert_half_lives({"learning_rate": 0.01, "beta2_half_life": 4096.0}, tokens_per_step=4096)
    {'learning_rate': 0.01, 'beta2': 0.5}
    """
    return {
        _HALF_LIVES.get(name, name): min(_ALMOST_ONE, 0.5 ** (tokens_per_step / value))
        if name in _HALF_LIVES
        else value
        for name, value in parameters.items()
    }


def replaced_names(names: Iterable[str], defaults: Mapping[str, float | None]) -> dict[str, str]:
    """Return the names that are half-lives of a workload's decay factors, each with the factor it replaces.

    Raises:
        SpecError: a factor and its half-life are both among the names.
    """
    given = set(names)
    replaced = {
        name: factor
        for name, factor in _HALF_LIVES.items()
        if name in given and name not in defaults and factor in defaults
    }
    for name, factor in replaced.items():
        if factor in given:
            raise SpecError(
                f"search: '{factor}' and '{name}' are the same metaparameter in two units; give a range or a value to "
                "one of them."
            )
    return replaced


def declare_bounds(name: str, bounds: Bounds) -> None:
    """Add the bounds of a metaparameter, for the life of this process.

    Raises:
        SpecError: The name has other bounds already.
    """
    declared = _BOUNDS.setdefault(name, bounds)
    if declared != bounds:
        raise SpecError(
            f"A metaparameter must have one declaration: '{name}' stays within {declared}. Found another, {bounds}; "
            "give the second another name."
        )


def declared_bounds() -> dict[str, Bounds]:
    """Return the bounds of all names, for another process to declare."""
    return dict(_BOUNDS)


_COUNTED_IN_STEPS = ("learning_rate_decay_steps",)


def natural_bounds(name: str, train_steps: int | None = None) -> Bounds:
    """Return the bounds of a metaparameter; an unknown name is unbounded.

    A metaparameter counted in steps ends at ``train_steps``: no trial gets further.

    >>> str(natural_bounds("momentum"))
    '[0, 1)'
    >>> str(natural_bounds("learning_rate_decay_steps", train_steps=500))
    '[1, 500]'
    """
    bounds = _BOUNDS.get(name, Bounds())
    if train_steps is not None and name in _COUNTED_IN_STEPS:
        return replace(bounds, high=float(train_steps))
    return bounds


def check_bounds(config: ParameterConfig) -> None:
    """Raise SpecError if a range (or a feasible point) leaves the natural bounds of its name."""
    discrete = config.type is ParameterType.DISCRETE
    for value in config.feasible_points if discrete else (config.min_value, config.max_value):
        check_value(config.name, value, " in its range")


def check_value(name: str, value: float, where: str = "") -> None:
    """Raise SpecError if a value leaves the natural bounds of its metaparameter, or the numbers that trials use."""
    bounds = natural_bounds(name)
    if not bounds.contains(value):
        raise SpecError(f"Metaparameter '{one_line(name)}' must stay within {bounds}. Found {value:g}{where}.")
    if value and not SMALLEST <= abs(value) <= LARGEST:
        raise SpecError(
            f"Metaparameter '{one_line(name)}' must be 0 or from {SMALLEST:g} to {LARGEST:g} in size: trials are "
            f"trained in 32-bit numbers. Found {value:g}{where}."
        )
