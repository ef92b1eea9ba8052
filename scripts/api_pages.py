"""The API reference: a page for every public package, made from docstrings when the site is built (a mkdocs hook).

A public package lists its public names in ``__all__``. Names that are loaded when first used are looked up,
so that the page shows what a user gets.
"""

import functools
import importlib
import inspect
import pkgutil
from typing import Any

import batchscale

TOP = "# API reference\nWhat each package offers to others; everything else may change without notice.\n\n"


@functools.cache
def public_packages() -> dict[str, list[str]]:
    """The public names of every package that has some, by the package's full name."""
    packages = [batchscale.__name__]
    packages += [f"batchscale.{found.name}" for found in pkgutil.iter_modules(batchscale.__path__) if found.ispkg]
    packages.append("batchscale.trial")  # the one module that users' scripts import
    named = {name: list(getattr(importlib.import_module(name), "__all__", ())) for name in packages}
    return {name: names for name, names in named.items() if names}


@functools.cache
def home(package: str, name: str) -> str:
    """Where a public name is defined, as the full name that documentation is looked up by."""
    module = importlib.import_module(package)
    value = getattr(module, name)
    if inspect.ismodule(value):
        return value.__name__
    origin = getattr(value, "__module__", None)
    if isinstance(origin, str) and origin.startswith("batchscale") and hasattr(value, "__qualname__"):
        return f"{origin}.{value.__qualname__}"
    lazy = getattr(module, "_PUBLIC", {})  # a constant does not know its module; the package does
    return f"{package}.{lazy[name]}.{name}" if name in lazy else f"{package}.{name}"


def make_page(package: str, names: list[str]) -> str:
    """The page of a package: its docstring, then every name in the order of the alphabet.

    A name that belongs to another package is described there, and the page leads to it: one description for each.
    """
    about = inspect.getdoc(importlib.import_module(package)) or ""
    parts = []
    for name in sorted(names, key=str.lower):
        if not name.startswith("__"):
            where = home(package, name)
            parts.append(f"::: {where}\n" if _owner(where) in (package, None) else f"[`{name}`][{where}]\n")
    return f"# {package}\n{about}\n\n" + "\n".join(parts)


def _owner(where: str) -> str | None:
    """The public package that offers what is defined here; None if none does."""
    package = ".".join(where.split(".")[:2])
    offered = public_packages().get(package, [])
    return package if where in {home(package, name) for name in offered} else None


def page_name(package: str) -> str:
    """The file of a package's page."""
    return f"api/{package}.md"


def on_config(config: Any) -> Any:
    """Puts the pages at the end of the contents."""
    pages = [{package: page_name(package)} for package in public_packages()]
    config.nav.append({"API reference": ["api/index.md", *pages]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Makes the pages."""
    from mkdocs.structure.files import File  # only the documentation is built with mkdocs

    found = public_packages()
    listed = "".join(f"- [{package}]({package}.md)\n" for package in found)
    files.append(File.generated(config, "api/index.md", content=TOP + listed))
    for package, names in found.items():
        files.append(File.generated(config, page_name(package), content=make_page(package, names)))
    return files
