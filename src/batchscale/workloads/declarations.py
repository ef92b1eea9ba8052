"""Tables of declarations: everything of one kind by name, from the modules of a package and from plug-ins. No jax.

A declaration is a frozen object at the top of a module: the description of a data set (or a model, an optimizer, …) and
the functions that make it. To add one, write a module into the folder that the table scans; from
another package, name the module as an entry point of the group ``batchscale.plugins``, or call ``register``.
"""

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Generic, Protocol, TypeVar

from batchscale.errors import SpecError, UnknownNameError, one_line, suggest_names
from batchscale.plugins import find_plugins, module_names


class Declaration(Protocol):
    """The interface of every declaration: the name in experiment files."""

    @property
    def name(self) -> str:
        """The name."""


D = TypeVar("D", bound=Declaration)


class Table(Generic[D]):
    """The declarations of one kind. Modules are imported at the first call, not with the table."""

    def __init__(self, kind: type[D], package: str, noun: str) -> None:
        self.kind = kind
        self.noun = noun
        self._package = package
        self._declared: dict[str, D] | None = None
        self._registered: dict[str, D] = {}

    def all(self) -> dict[str, D]:
        """Return every declaration by name, in order of the names."""
        if self._declared is None:
            declarations: dict[str, D] = {}
            for module in _load_modules(self._package):
                for declaration in _declared_in(module, self.kind):
                    if declarations.setdefault(declaration.name, declaration) is not declaration:
                        raise SpecError(self._twice(declaration.name, f"{module.__name__} is not the first"))
            self._declared = declarations
        return dict(sorted({**self._declared, **self._registered}.items()))

    def find(self, name: str) -> D:
        """Return the declaration of this name.

        Raises:
            UnknownNameError: There is none; the message has the nearest names.
        """
        declarations = self.all()
        if name not in declarations:
            raise UnknownNameError(f"There is no {self.noun} '{one_line(name)}'; {suggest_names(name, declarations)}")
        return declarations[name]

    def register(self, declaration: D) -> None:
        """Add a declaration for the life of this process; it replaces a registered one of the same name.

        Raises:
            SpecError: A module of batchscale or of a plug-in already declares the name.
        """
        self.all()
        assert self._declared is not None
        if declaration.name in self._declared:
            raise SpecError(self._twice(declaration.name, "it is already declared"))
        self._registered[declaration.name] = declaration

    def is_registered(self, name: str) -> bool:
        """True if ``register`` added this name."""
        return name in self._registered

    def _twice(self, name: str, how: str) -> str:
        return f"Names must be unique: the {self.noun} '{one_line(name)}' is declared twice ({how})."


def _declared_in(module: ModuleType, kind: type[D]) -> Iterator[D]:
    """Yield the declarations at the top of a module, alone or in tuples."""
    for value in tuple(vars(module).values()):
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, kind):
                yield item


def _load_modules(package: str) -> Iterator[ModuleType]:
    """Import and yield the modules of a package and those of all plug-ins."""
    for name in module_names(importlib.import_module(package)):
        yield importlib.import_module(name)
    for plugin in find_plugins():
        yield from plugin.modules()
