"""Web pages of plug-ins: routes, templates, static files, menu entries and the paths that take uploads."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fastapi import APIRouter

from batchscale.plugins import find_plugins


@dataclass(frozen=True)
class PluginPages:
    """The pages of one plug-in, which its attribute ``PAGES`` names.

    ``make_routes`` gets the server's `ServerParts`. ``package``, if any, has the folders ``templates`` and
    ``static``. The files of the latter are in ``static`` by name, with their media types, and are served below
    ``/static/``. ``menu`` has titles by path.
    Bodies sent to paths that match ``uploads`` are not read as forms: the route reads and limits them.
    """

    make_routes: Callable[..., APIRouter]
    package: str | None = None
    static: Mapping[str, str] = field(default_factory=dict)
    menu: Mapping[str, str] = field(default_factory=dict)
    uploads: re.Pattern[str] | None = None


def load_plugin_pages() -> tuple[PluginPages, ...]:
    """Import and return the pages of all plug-ins that have any."""
    references = [(plugin, plugin.read("PAGES", None)) for plugin in find_plugins()]
    return tuple(plugin.load(reference) for plugin, reference in references if reference is not None)
