"""The JSON form of our own metadata: an object with a version, under one key of ``study.json`` and ``metadata.json``.

The classes are plain dataclasses; pydantic checks their values by the types of their fields. The types here carry the
rule that an error states. An absent key and ``null`` are the same: the field has its default. One version counts for
both files. A key of this version that has no field is kept in ``other``, so that reading and writing loses nothing.
"""

import dataclasses
import functools
import math
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from batchscale.errors import RecordsError, one_line
from batchscale.spec.space import SearchSpace

OWN_KEY = "batchscale"
FORMAT_VERSION = 2
VERSION_KEY = "format_version"
CHECKSUM_KEY = "metadata_sha256"
"""The checksum of all else in the file. The writer adds it to the text; no record has it."""
OTHER = "other"
MAX_WHOLE = 2**63 - 1  # seeds use all of it

T = TypeVar("T")

Text = Annotated[str, Field(strict=True, description="is text")]
Flag = Annotated[bool, Field(strict=True, description="is true or false")]
Whole = Annotated[int, Field(strict=True, ge=0, le=MAX_WHOLE, description="is a whole number of at least 0")]
Positive = Annotated[int, Field(strict=True, ge=1, le=MAX_WHOLE, description="is a whole number of at least 1")]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False, description="is a finite number")]
JsonObject = Annotated[Mapping[str, Any], Field(description="is an object")]


class MetadataError(RecordsError):
    """A value under our key is not of its kind; ``key`` is its name."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


class NewerFormatError(RecordsError):
    """The file was written by a later batchscale, in a format that this one cannot read."""


def read_version(data: object, where: str) -> int:
    """Return the version of the metadata in a file.

    Raises:
        NewerFormatError: it is newer than ours.
        MetadataError: it is no version.
    """
    version = data.get(VERSION_KEY, 1) if isinstance(data, Mapping) else None
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise MetadataError(
            f"{where}: '{OWN_KEY}' is an object with a {VERSION_KEY} from 1. Found {one_line(repr(data), 80)}.", OWN_KEY
        )
    if version > FORMAT_VERSION:
        raise NewerFormatError(
            f"{where}: this batchscale reads format versions up to {FORMAT_VERSION}. Found version {version}, written "
            "by a later one; install that version or a newer one to use these records."
        )
    return version


def json_key(key: str) -> dict[str, str]:
    """Return the ``metadata`` of a dataclass field whose key in JSON is not its name."""
    return {"json_key": key}


def parse_metadata(kind: type[T], data: Mapping[str, Any], where: str) -> T:
    """Return the metadata that a JSON object of today's version describes; ``where`` is its file, for messages.

    Raises:
        MetadataError: a value is not of its kind.
    """
    keys = {key for _, key, _ in _fields(kind)}
    other = {key: value for key, value in data.items() if key not in keys and key not in (VERSION_KEY, CHECKSUM_KEY)}
    try:
        metadata: T = _adapter(kind).validate_python({**_named(kind, data), OTHER: other})
    except ValidationError as error:
        raise _explain(error, kind, data, f"{where}: {OWN_KEY}") from None
    return metadata


def metadata_json(metadata: Any) -> dict[str, Any]:
    """Return the JSON object of a study's or trial's metadata: absent and empty values have no key."""
    pairs = {key: getattr(metadata, name) for name, key, _ in _fields(type(metadata))}
    values = {key: to_json(value) for key, value in pairs.items() if value is not None and value not in ((), {})}
    return {**metadata.other, VERSION_KEY: FORMAT_VERSION, **values}


def is_finite(value: object) -> bool:
    """True if a JSON value is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond the largest float
        return False


def plain_type(annotation: Any) -> Any:
    """Return the type of a field without its rule and without None.

    >>> plain_type(Whole | None)
    <class 'int'>
    """
    if typing.get_origin(annotation) is Annotated:
        return plain_type(annotation.__origin__)
    options = [option for option in typing.get_args(annotation) if option is not type(None)]
    is_optional = type(None) in typing.get_args(annotation)
    return plain_type(options[0]) if is_optional else annotation


def _cached(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """Cache a function of a class; mypy does not accept every class as hashable."""
    return functools.cache(function)


@_cached
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@_cached
def _fields(kind: Any) -> tuple[tuple[str, str, Any], ...]:
    """Return the name, the key in JSON and the annotation of each field but ``other``."""
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = [field for field in dataclasses.fields(kind) if field.name != OTHER]
    return tuple((field.name, field.metadata.get("json_key", field.name), hints[field.name]) for field in fields)


@_cached
def _nested(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return the names of the fields that are objects or lists of objects with fields of their own, and their kinds."""
    nested = []
    for name, _, annotation in _fields(kind):
        inner = plain_type(annotation)
        items = typing.get_args(inner)[:1] if typing.get_origin(inner) is tuple else (inner,)
        nested += [(name, item) for item in items if dataclasses.is_dataclass(item) and item is not SearchSpace]
    return tuple(nested)


def _named(kind: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by field name, without those that are null, in nested objects as well."""
    values = {name: data[key] for name, key, _ in _fields(kind) if data.get(key) is not None}
    for name, inner in _nested(kind):
        value = values.get(name)
        if isinstance(value, Mapping):
            values[name] = _named(inner, value)
        elif isinstance(value, list):
            values[name] = [_named(inner, item) if isinstance(item, Mapping) else item for item in value]
    return values


def to_json(value: Any) -> Any:
    """Return a value of a metadata class as JSON has it: objects without what is absent."""
    if isinstance(value, SearchSpace):
        return value.to_json()
    if isinstance(value, StrEnum):
        return value.value
    if dataclasses.is_dataclass(value):
        values = {key: getattr(value, name) for name, key, _ in _fields(type(value))}
        return {key: to_json(item) for key, item in values.items() if item is not None}
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def _explain(error: ValidationError, kind: Any, data: Any, where: str) -> MetadataError:
    """Return the error of the first value that is wrong: its keys, its rule, and the value."""
    first = error.errors(include_url=False)[0]
    places, key = list(first["loc"]), ""
    rule = "is an object"
    while places and dataclasses.is_dataclass(kind):
        name = places.pop(0)
        key, annotation = next((key, hint) for field, key, hint in _fields(kind) if field == name)
        where, data = f"{where}.{key}", data.get(key)
        rule, kind = _rule(annotation), plain_type(annotation)
        if typing.get_origin(kind) is tuple and dataclasses.is_dataclass(typing.get_args(kind)[0]) and places:
            number = places.pop(0)
            where, data = f"{where}[{number}]", data[number]
            rule, kind = "is an object", typing.get_args(kind)[0]
    reason = first.get("ctx", {}).get("error")
    detail = f" ({one_line(reason)})" if isinstance(reason, Exception) and str(reason) else ""
    return MetadataError(f"{where} {rule}{detail}. Found {one_line(repr(data), 80)}.", key)


def _rule(annotation: Any) -> str:
    """Return the rule that a field's type states."""
    for part in (annotation, *typing.get_args(annotation)):
        if typing.get_origin(part) is Annotated:
            rules = [mark.description for mark in part.__metadata__ if isinstance(mark, FieldInfo) and mark.description]
            if rules:
                return rules[-1]
    return "is a list" if typing.get_origin(plain_type(annotation)) is tuple else "is an object"
