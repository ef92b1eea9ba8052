"""The libraries that the code imports are declared: those of every user, and those of an extra where it is needed."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Users get these extras for the rooms named here; elsewhere their libraries are imported in functions that handle their
# absence.
ROOMS_OF_EXTRAS = {
    "web": ("batchscale/web/", "batchscale/instruments/web/"),
    "jax": ("batchscale/training/", "batchscale/workloads/", "batchscale/instruments/"),
}
# Libraries that are in no environment of developers.
DISTRIBUTIONS = {"ray": "ray", "datasets": "datasets", "fsspec": "s3fs"}
# Tools that users have or do without: their trackers import them in a thread, and their absence is a notice.
TRACKED_TOOLS = {"mlflow", "trackio", "wandb"}
# Only scripts of users that have the library import these modules.
MODULES_FOR_SCRIPTS = {"gradient_noise.py": {"torch"}}


def names(requirements: list[str]) -> set[str]:
    return {normal(re.match(r"[\w.-]+", text).group()) for text in requirements}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imports(file: Path) -> Iterator[tuple[str, bool]]:
    """Yields the libraries that a file imports, and if they are imported with the file."""

    def walk(node: ast.AST, at_import: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
                continue
            if isinstance(child, ast.Import):
                yield from ((alias.name.partition(".")[0], at_import) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                yield child.module.partition(".")[0], at_import
            else:
                yield from walk(child, at_import and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    ours = {*sys.stdlib_module_names, "batchscale"} | MODULES_FOR_SCRIPTS.get(file.name, set())
    if "trackers" in file.parts:
        ours |= {name for name, at_import in walk(ast.parse(file.read_text()), True) if not at_import} & TRACKED_TOOLS
    return ((name, at_import) for name, at_import in walk(ast.parse(file.read_text()), True) if name not in ours)


BASE = names(PROJECT["dependencies"])
EXTRAS = {extra: names(needed) for extra, needed in PROJECT["optional-dependencies"].items()}
USERS_EXTRAS = {extra: needed for extra, needed in EXTRAS.items() if extra not in ("dev", "bench", "docs")}
INSTALLED = packages_distributions()


def distributions(library: str) -> set[str]:
    if library in DISTRIBUTIONS:
        return {DISTRIBUTIONS[library]}
    return {normal(name) for name in INSTALLED[library]}


def undeclared(file: Path) -> list[str]:
    path = str(file.relative_to(SOURCE))
    rooms = [extra for extra, paths in ROOMS_OF_EXTRAS.items() if path.startswith(paths)]
    here = BASE.union(*(EXTRAS[extra] for extra in rooms))
    anywhere = BASE.union(*USERS_EXTRAS.values())
    return [
        f"{path}: {library}"
        for library, at_import in imports(file)
        if not distributions(library) & (here if at_import else anywhere)
    ]


def test_every_import_is_declared_where_it_is_needed():
    assert [problem for file in sorted(SOURCE.rglob("*.py")) for problem in undeclared(file)] == []


def test_the_walk_sees_imports_at_every_place(tmp_path):
    (tmp_path / "a.py").write_text(
        "import json, jax.numpy\nif TYPE_CHECKING:\n    import never\n"
        "try:\n    from flax import nnx\nexcept ImportError: ...\n"
        "class A:\n    def f(self):\n        if True:\n            import ray\n"
    )
    assert list(imports(tmp_path / "a.py")) == [("jax", True), ("flax", True), ("ray", False)]


def test_every_library_that_is_declared_is_imported():
    used = {name for file in SOURCE.rglob("*.py") for library, _ in imports(file) for name in distributions(library)}
    assert BASE.union(*USERS_EXTRAS.values()) - used - {"gcsfs"} == set()  # fsspec loads it by the scheme gs://
