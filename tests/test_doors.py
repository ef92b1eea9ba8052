"""What a package's ``__init__`` offers is all that other packages use of it, and the lists are pinned in doors.txt.

A name that is added to a door, or taken from it, is a promise to everyone who imports it: change doors.txt with it.
"""

import ast
import functools
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import batchscale

SOURCE = Path(batchscale.__file__).parent
PINNED = Path(__file__).with_name("doors.txt")
PACKAGES = (
    "analysis",
    "cli",
    "cluster",
    "driver",
    "figures",
    "planning",
    "protocol",
    "records",
    "report",
    "runners",
    "search",
    "spec",
    "trainers",
    "training",
    "web",
    "workloads",
)
# Modules that are doors of their own: the command's entry point, forms for JSON, wordings, job files, placeholders of a
# command, the interface that training stands on, sound.
OWN_DOORS = {
    ("cli", "app"),
    ("analysis", "as_json"),
    ("analysis", "wording"),
    ("planning", "as_json"),
    ("planning", "jobs"),
    ("planning", "words"),
    ("spec", "trainer"),
    ("records", "mirror"),
    ("workloads", "audio"),
    ("workloads", "workload"),
}


def pinned(package: str) -> list[str]:
    lines = PINNED.read_text().splitlines()
    return [name for line in lines for head, _, name in [line.partition(" ")] if head == package]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_door_offers_the_pinned_names_and_each_is_there(package):
    module = importlib.import_module(f"batchscale.{package}")
    assert sorted(module.__all__) == sorted(pinned(package))
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None, name
    with pytest.raises(AttributeError):
        _ = module.no_such_name


@pytest.mark.parametrize("package", PACKAGES)
def test_other_packages_use_only_what_the_door_offers(package):
    offered = set(importlib.import_module(f"batchscale.{package}").__all__)
    wrong = [
        f"{path.relative_to(SOURCE)}: {module or package}.{name}"
        for path, module, name in imports_of(package)
        if name not in offered and not is_door_of_its_own(package, module, name)
    ]
    assert not wrong, "\n".join(wrong)


def is_door_of_its_own(package: str, module: str, name: str) -> bool:
    """Whether the module is one, or lies in a package that is one and offers the name."""
    room = module.partition(".")[0]
    if (package, room) not in OWN_DOORS:
        return False
    return module == room or name in importlib.import_module(f"batchscale.{package}.{room}").__all__


def imports_of(package: str) -> Iterator[tuple[Path, str, str]]:
    """Every name that a file outside the package imports from it: the file, the module inside, the name."""
    for path, module, name in our_imports():
        head, _, inside = module.partition(".")
        if head == package and path.relative_to(SOURCE).parts[0] != package:
            yield path, inside, name


@functools.cache
def our_imports() -> tuple[tuple[Path, str, str], ...]:
    """Every name of ours that is imported anywhere: the file, the module without our own name, the name."""
    return tuple(
        (path, node.module.removeprefix("batchscale."), alias.name)
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("batchscale.")
        for alias in node.names
    )
