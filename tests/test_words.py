"""One noun, one meaning: no two public classes or types of the package share a name."""

import ast
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
