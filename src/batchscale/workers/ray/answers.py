"""What actors answer, checked: it comes from another machine."""

from typing import Any

from batchscale.errors import RunError
from batchscale.study.failure import Failure

_LOOK = {"node": str, "host": str, "version": str, "sees": bool, "pid": int}
_WRONG = "A worker on another machine answers as this version of batchscale does. It did not: install the same there."


def check_look(found: object) -> dict[str, Any]:
    """What `NodeActor.look` said, checked.

    Raises:
        RunError: it is something else.
    """
    if not isinstance(found, dict) or {name: type(value) for name, value in found.items()} != _LOOK:
        raise RunError(_WRONG)
    return found


def check_news(found: object) -> tuple[list[bytes], Failure | None]:
    """What `NodeActor.news` said, checked; the messages themselves are checked when they are decoded.

    Raises:
        RunError: it is something else.
    """
    if not isinstance(found, tuple) or len(found) != 2:
        raise RunError(_WRONG)
    messages, ended = found
    if not isinstance(messages, list) or not all(isinstance(data, bytes) for data in messages):
        raise RunError(_WRONG)
    return messages, None if ended is None else _check_end(ended)


def _check_end(found: object) -> Failure:
    if not isinstance(found, tuple) or len(found) != 2:
        raise RunError(_WRONG)
    words, lines = found
    if not isinstance(words, str) or not isinstance(lines, tuple) or not all(isinstance(line, str) for line in lines):
        raise RunError(_WRONG)
    return Failure(words, lines)
