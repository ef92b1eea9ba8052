"""Load a package's public names on first use, so that importing the package costs nothing."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def load_lazily(
    package: str, modules: Mapping[str, str], *defined: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    Args:
        package: The package's ``__name__``.
        modules: For each public name, the module below the package that defines it.
        defined: Names that the package defines itself; ``dir`` lists them too.
    """

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{modules[name]}"), name)

    return load, lambda: sorted((*modules, *defined))
