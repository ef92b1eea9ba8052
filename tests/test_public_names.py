"""The public names of batchscale: each package's ``__all__``, each loaded on first use."""

import ast
import importlib
from pathlib import Path

import pytest

import batchscale
from batchscale import trial

PACKAGES = ("analysis", "figures", "planning", "records", "spec", "workloads")
MOST_NAMES = 120


def public_names(package: str) -> list[str]:
    return importlib.import_module(f"batchscale.{package}").__all__


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_of_a_package_can_be_loaded(package):
    module = importlib.import_module(f"batchscale.{package}")
    assert sorted(set(module.__all__)) == sorted(module.__all__)
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None, name
    with pytest.raises(AttributeError):
        _ = module.no_such_name


def test_every_public_name_of_batchscale_itself_can_be_loaded():
    assert all(getattr(batchscale, name) is not None for name in batchscale.__all__)


def test_the_types_of_the_public_names_are_those_of_the_names():
    stub = ast.parse(Path(batchscale.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = {node.names[0].asname: node.module for node in stub.body if isinstance(node, ast.ImportFrom)}
    assert {*imports, "__version__"} == set(batchscale.__all__)
    for name, module in imports.items():
        assert getattr(importlib.import_module(module), name) is getattr(batchscale, name), name


def test_there_are_few_enough_public_names_to_learn():
    names = {name for package in PACKAGES for name in public_names(package)} | set(batchscale.__all__)
    assert len(names) + len(trial.__all__) <= MOST_NAMES
