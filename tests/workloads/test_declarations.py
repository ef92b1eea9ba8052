"""The tables of declarations, and the door of the package."""

import subprocess
import sys

import pytest

import batchscale.workloads as door
from batchscale.errors import SpecError, UnknownNameError
from batchscale.workloads.declarations import Table
from batchscale.workloads.optimizers.declaration import OptimizerDeclaration
from batchscale.workloads.user.registration import TABLES

SGD = "batchscale.workloads.optimizers.builtin"


def make(name):
    return OptimizerDeclaration(name, {"learning_rate": None}, (), lambda values, rate: None)


def test_the_door_opens_without_jax():
    code = (
        "import sys, batchscale.workloads as door\n"
        "[getattr(door, name) for name in door.__all__ if name not in ('get_workload', 'examples_from')]\n"
        "from batchscale.workloads.user.registration import TABLES\n"
        "assert all(table.all() for table in TABLES)\n"
        "sys.exit(any(name in sys.modules for name in ('jax', 'flax', 'optax')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.noun)
def test_declarations_are_in_order_of_name_and_an_unknown_one_names_the_nearest(table):
    names = list(table.all())
    assert names == sorted(names)
    with pytest.raises(UnknownNameError, match=f"There is no {table.noun} '{names[0]}x'; did you mean"):
        table.find(f"{names[0]}x")


def test_what_is_registered_is_found_and_may_be_replaced_but_nothing_built_in():
    table = Table(OptimizerDeclaration, SGD, "optimizer")
    first, second = make("mine"), make("mine")
    table.register(first)
    assert table.find("mine") is first and table.is_registered("mine") and not table.is_registered("sgd")
    table.register(second)
    assert table.find("mine") is second
    with pytest.raises(SpecError, match="'sgd' is declared twice"):
        table.register(make("sgd"))


def test_only_declarations_can_be_registered():
    with pytest.raises(SpecError, match=r"OptimizerDeclaration.*Found 'sgd'"):
        door.register("sgd")
