"""Tables of declarations: everything of one kind by name, from the modules of a package and from plug-ins. No jax here.

A declaration is a frozen object at the top of a module: what must be known of a data set (or a model, an optimizer, …)
before it is used, and the functions that make it. To add one, write a module into the folder that the table scans; from
another package, name the module as an entry point of the group ``batchscale.plugins``, or call ``register``.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from importlib import metadata
from types import ModuleType
from typing import Generic, Protocol, TypeVar

from batchscale.errors import BatchscaleError, SpecError, UnknownNameError, one_line, suggest_names

PLUGINS = "batchscale.plugins"
"""The group of entry points that name modules with declarations."""


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
            for module in (*_modules(importlib.import_module(self._package)), *_plugins()):
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


def _modules(found: ModuleType) -> Iterator[ModuleType]:
    """A module, and the modules of its folder if it is a package."""
    yield found
    for module in sorted(pkgutil.iter_modules(getattr(found, "__path__", ())), key=lambda one: one.name):
        if not module.ispkg:
            yield importlib.import_module(f"{found.__name__}.{module.name}")


def _plugins() -> Iterator[ModuleType]:
    for entry in sorted(metadata.entry_points(group=PLUGINS), key=lambda one: one.name):
        try:
            yield from _modules(importlib.import_module(entry.module))
        except BatchscaleError:
            raise
        except Exception as error:  # another package's code may raise anything; it is reported as theirs
            raise SpecError(
                f"The plug-in '{one_line(entry.name)}' ({PLUGINS}: {one_line(entry.value)}) cannot be imported: "
                f"{type(error).__name__}: {one_line(error, 300)}. Mend it or uninstall it."
            ) from error
