"""The options that data sets take, as frozen classes: unknown keys and impossible values are refused by name."""

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from batchscale.errors import SpecError, one_line, suggest_names
from batchscale.spec.experiment import Options


class NoOptions(BaseModel):
    """A data set that takes no options; the base of all that do."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


T = TypeVar("T", bound=NoOptions)


def parse_options(kind: type[T], dataset: str, options: Options) -> T:
    """The options of a data set as its own class, or a SpecError that names the key and the rule."""
    try:
        return kind.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"]) or "options"
    if first["type"] == "extra_forbidden":
        hint = suggest_names(key, kind.model_fields)
        raise SpecError(f"Data set {dataset!r} has no option {one_line(repr(key))}: {hint}")
    found = "" if first["type"] in ("missing", "value_error") else f" Found {one_line(repr(first['input']))}."
    raise SpecError(f"Option {key!r} of data set {dataset!r}: {first['msg']}.{found}")
