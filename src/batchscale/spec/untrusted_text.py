"""Parse TOML and JSON of unknown origin: length and depth are bounded, so that no text costs more than its size.

The parsers of the standard library recurse, and the one of TOML takes time and memory by the square of a dotted key's
length: ``a.a.a…=1`` of 120 kB took 14 GB. Both functions here raise ValueError, as the parsers do.
"""

import json
import re
import tomllib
from collections.abc import Callable
from typing import Any

MAX_TOML_CHARACTERS = 1_000_000
MAX_KEY_PARTS = 16
"""Of a dotted key or the name of a table. An experiment file needs four."""
MAX_NESTING = 32
MAX_JSON_NESTING = 100

_TOML_TOKEN = re.compile(
    r'''#[^\n]*|"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"""|\'\'\'|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[\n=,.{}\[\]]''',
    re.DOTALL,
)
_NEW_KEY = frozenset("\n=,{[")


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raises:
        ValueError: it is no TOML, too long, or nested too deep.
    """
    if len(text) > MAX_TOML_CHARACTERS:
        raise ValueError(f"the text must have at most {MAX_TOML_CHARACTERS:,} characters. Found {len(text):,}")
    _check_toml_depth(text)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"values must be nested at most {MAX_NESTING} deep") from None


def parse_json(text: bytes | str, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """Return the value of a JSON text; ``parse_constant`` is called with NaN and infinities, as in ``json``.

    Raises:
        ValueError: it is no JSON, or nested too deep.
    """
    try:
        value = json.loads(text, parse_constant=parse_constant)
    except RecursionError:
        value = None
        depth = MAX_JSON_NESTING + 1
    else:
        is_bytes = isinstance(text, bytes)
        opened = text.count(b"[") + text.count(b"{") if is_bytes else text.count("[") + text.count("{")  # type: ignore[arg-type]
        depth = _depth(value) if opened > MAX_JSON_NESTING else 0
    if depth > MAX_JSON_NESTING:
        raise ValueError(f"values must be nested at most {MAX_JSON_NESTING} deep. Found more")
    return value


def _check_toml_depth(text: str) -> None:
    dots = depth = 0
    for match in _TOML_TOKEN.finditer(text):
        part = match[0]
        if part in ('"""', "'''"):
            return  # never closed: the parser says where
        if part == ".":
            dots += 1
        elif part in _NEW_KEY:
            dots = 0
        if part in ("[", "{"):
            depth += 1
        elif part in ("]", "}"):
            depth -= 1
        if dots >= MAX_KEY_PARTS:
            line = text.count("\n", 0, match.start()) + 1
            raise ValueError(f"a key must have at most {MAX_KEY_PARTS} parts. Found more in line {line}")
        if depth > MAX_NESTING:
            line = text.count("\n", 0, match.start()) + 1
            raise ValueError(f"values must be nested at most {MAX_NESTING} deep. Found more in line {line}")


def _depth(value: Any) -> int:
    """Return how deep lists and objects are nested, without recursion."""
    level, depth = [value], 0
    while level:
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        depth += any(isinstance(item, dict | list) for item in level)
        level = inner
        if depth > MAX_JSON_NESTING:
            break
    return depth
