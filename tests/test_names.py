"""One noun, one meaning: no two public classes or types share a name, and no module hides behind one of its package."""

import ast
import importlib
import pkgutil
from collections import defaultdict
from pathlib import Path

import batchscale

SOURCE = Path(batchscale.__file__).parent


def declared_names(path: Path) -> list[str]:
    """The public classes and type aliases of a module."""
    names = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names.append(node.targets[0].id)
    return [name for name in names if name[0].isupper() and not name.isupper()]


def test_no_two_classes_share_a_name():
    places = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for name in declared_names(path):
            places[name].append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_module_is_what_its_package_has_by_its_name():
    """Else ``import batchscale.package.module as m`` gives whatever the package offers by that name."""
    modules = [found.name for found in pkgutil.walk_packages(batchscale.__path__, "batchscale.")]
    hidden = []
    for full_name in modules:
        package, _, name = full_name.rpartition(".")
        module = importlib.import_module(package)
        bound = vars(module).get(name)
        is_module = bound is None or getattr(bound, "__name__", "") == full_name
        if not is_module or name in getattr(module, "__all__", ()):
            hidden.append(full_name)
    assert len(modules) > 300
    assert hidden == []
