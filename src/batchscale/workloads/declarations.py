"""Tables of declarations: everything of one kind by name, from the modules of a package and from plug-ins. No jax here.

A declaration is a frozen object at the top of a module: what must be known of a data set (or a model, an optimizer, …)
before it is used, and the functions that make it. To add one, write a module into the folder that the table scans; from
another package, name the module as an entry point of the group ``batchscale.plugins``, or call ``register``.
"""

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Generic, Protocol, TypeVar

from batchscale.errors import SpecError, UnknownNameError, one_line, suggest_names
from batchscale.plugins import find_plugins, module_names


class Declaration(Protocol):
    """What every declaration has: the name that stands in experiment files."""

    @property
    def name(self) -> str:
        """The name."""


D = TypeVar("D", bound=Declaration)


class Table(Generic[D]):
    """The declarations of one kind. Modules are imported at the first question, never at import of the table."""

    def __init__(self, kind: type[D], package: str, noun: str) -> None:
        self.kind = kind
        self.noun = noun
        self._package = package
        self._found: dict[str, D] | None = None
        self._registered: dict[str, D] = {}

    def all(self) -> dict[str, D]:
        """Every declaration by name, in order of the names."""
        if self._found is None:
            found: dict[str, D] = {}
            for module in _load_modules(self._package):
                for declaration in _declared_in(module, self.kind):
                    if found.setdefault(declaration.name, declaration) is not declaration:
                        raise SpecError(self._twice(declaration.name, f"{module.__name__} is not the first"))
            self._found = found
        return dict(sorted({**self._found, **self._registered}.items()))

    def find(self, name: str) -> D:
        """The declaration of this name.

        Raises:
            UnknownNameError: There is none; the message has the nearest names.
        """
        known = self.all()
        if name not in known:
            raise UnknownNameError(f"There is no {self.noun} '{one_line(name)}'; {suggest_names(name, known)}")
        return known[name]

    def register(self, declaration: D) -> None:
        """Adds a declaration for the life of this process; a name that was registered before gets the new one.

        Raises:
            SpecError: A module of batchscale or of a plug-in already declares the name.
        """
        self.all()
        assert self._found is not None
        if declaration.name in self._found:
            raise SpecError(self._twice(declaration.name, "it is already there"))
        self._registered[declaration.name] = declaration

    def is_registered(self, name: str) -> bool:
        """Whether ``register`` added this name."""
        return name in self._registered

    def _twice(self, name: str, how: str) -> str:
        return f"Two things cannot have one name: the {self.noun} '{one_line(name)}' is declared twice ({how})."


def _declared_in(module: ModuleType, kind: type[D]) -> Iterator[D]:
    """The declarations at the top of a module, alone or in tuples."""
    for value in tuple(vars(module).values()):
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, kind):
                yield one


def _load_modules(package: str) -> Iterator[ModuleType]:
    """Import and yield the modules of a package and those of all plug-ins."""
    for name in module_names(importlib.import_module(package)):
        yield importlib.import_module(name)
    for plugin in find_plugins():
        yield from plugin.modules()
