"""Plug-ins: modules that bring parts of workloads, commands and web pages. Imports nothing heavy.

A plug-in is a module or package named by an entry point of the group ``batchscale.plugins``. It may have

- declarations of data sets, models, optimizers, schedules and metrics, at the top of the module or, for a package, of
  the modules in its folder (those are imported when workloads are listed, so they must import quickly);
- ``COMMANDS``: commands by name, each as ``"module:function"``; ``"data audio"`` is ``audio`` in the group ``data``;
- ``COMMAND_GROUPS``: groups of commands by name, each as the ``"module:function"`` that makes a ``typer.Typer``;
- ``TRACKERS``: trackers by name, each as the ``"module:Class"`` of a ``batchscale.run.trackers.tracker.Tracker``;
- ``PAGES``: web pages, as the ``"module:object"`` of a ``batchscale.web.plugin_pages.PluginPages``.

References are text, so that a command or a page is imported only when it is used.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from batchscale.errors import BatchscaleError, SpecError, one_line

GROUP = "batchscale.plugins"
"""The group of entry points that name plug-ins."""

BUILT_IN = ("batchscale.instruments",)
"""Plug-ins of this distribution. They need no entry point, so they also work in a copy that is not installed."""


@dataclass(frozen=True)
class Plugin:
    """A plug-in: the name of its entry point, and its module."""

    name: str
    module: str

    def load(self, reference: str) -> Any:
        """Return what ``"module"`` or ``"module:object"`` names.

        Raises:
            SpecError: It cannot be imported.
        """
        module, _, attribute = reference.partition(":")
        try:
            loaded = importlib.import_module(module)
            return getattr(loaded, attribute) if attribute else loaded
        except BatchscaleError:
            raise
        except Exception as error:  # another package's code may raise anything; it is reported as theirs
            raise SpecError(
                f"The plug-in '{one_line(self.name)}' ({GROUP}: {one_line(reference)}) cannot be imported: "
                f"{type(error).__name__}: {one_line(error, 300)}. Fix it or uninstall it."
            ) from error

    def read(self, attribute: str, default: Any) -> Any:
        """Return an attribute of the plug-in's module, such as ``COMMANDS``."""
        return getattr(self.load(self.module), attribute, default)

    def modules(self) -> Iterator[ModuleType]:
        """Import and yield its module and, for a package, the modules of its folder."""
        for name in module_names(self.load(self.module)):
            yield self.load(name)


def find_plugins() -> list[Plugin]:
    """Return the plug-ins of this distribution and those that are installed, in order of their names."""
    from importlib import metadata  # takes 50 ms: not for commands that need no plug-in

    entries = sorted(metadata.entry_points(group=GROUP), key=lambda entry: entry.name)
    return [*(Plugin(name, name) for name in BUILT_IN), *(Plugin(entry.name, entry.module) for entry in entries)]


def module_names(package: ModuleType) -> list[str]:
    """Return the names of a module and, if it is a package, of the modules in its folder; not of folders below."""
    inside = pkgutil.iter_modules(getattr(package, "__path__", ()))
    return [package.__name__, *sorted(f"{package.__name__}.{module.name}" for module in inside if not module.ispkg)]
