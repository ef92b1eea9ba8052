"""The kinds of chart, one module each: to add a kind, write a module here that declares its ``KIND``.

The module's name is the kind's, with hyphens on the command line. Names are listed without loading any module, so that
``batchscale --help`` needs no charting library.
"""

import importlib
import pkgutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from batchscale.errors import UnknownNameError, one_line, suggest_names

if TYPE_CHECKING:
    from batchscale.figures.kind import FigureKind


def kind_names() -> tuple[str, ...]:
    """Return the names of all kinds, as the command line spells them.

    >>> "effective-learning-rate" in kind_names()
    True
    """
    return tuple(sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__)))


def find_kind(name: str, others: Sequence[str] = ()) -> "FigureKind":
    """Return the kind of this name; ``others`` are further names that would have been valid."""
    names = kind_names()
    if name not in names:
        raise UnknownNameError(f"No figure is called '{one_line(name)}'; {suggest_names(name, [*names, *others])}")
    declared: FigureKind = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").KIND
    return declared
