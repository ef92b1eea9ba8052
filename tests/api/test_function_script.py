"""A function becomes a script that does the same in another process, or a sentence says what cannot be sent there."""

import json
import linecache
import os
import subprocess
import sys
import threading
import types
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from batchscale.api.function_script import make_script
from batchscale.errors import SpecError

TABLE = np.arange(5.0)
LOCK = threading.Lock()
FRAME = pl.DataFrame({"a": [1, 2]})


def in_another_process(function, folder: Path) -> str:
    """What the script of a function prints, run by its file with a trial."""
    script = make_script(function)
    (folder / "train.py").write_text(script.text, encoding="utf-8")
    if script.values_file:
        (folder / script.values_file).write_bytes(script.values)
    (folder / "process.json").write_text(json.dumps({"folder": str(folder), "path": [str(Path.cwd()), *sys.path]}))
    answer = subprocess.run(
        [sys.executable, "-W", "error", "train.py"], cwd=folder, capture_output=True, text=True, timeout=60,
        env={name: value for name, value in os.environ.items() if name != "BATCHSCALE_TRIAL"},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr + script.text
    return answer.stdout.strip()


NOTEBOOK = """
import math
import xml.etree.ElementTree
from dataclasses import dataclass
from functools import lru_cache, wraps
import numpy as np
from json import dumps as write

SCALE = 3.0
TABLE = np.arange(5.0)
lock = __import__("threading").Lock()

@dataclass
class Settings:
    width: int = 2

class Model:
    def __init__(self, settings: Settings) -> None:
        self.total = SCALE * settings.width + TABLE.sum()

settings = Settings()
offset = {"by": 0.5}

def add(value: float) -> float:
    return value + offset["by"] + math.floor(0.7)

def loud(function):
    @wraps(function)
    def call(*values):
        return function(*values) + 1
    return call

@lru_cache
def even(n: int) -> bool:
    return n == 0 or odd(n - 1)

def odd(n: int) -> bool:
    return n != 0 and even(n - 1)

@loud
def twice(value: int) -> int:
    return 2 * value

def train(run, default=SCALE):
    element = xml.etree.ElementTree.Element("a")
    print(add(Model(settings).total) + default, run.batch_size, twice(3), even(10), write(element.tag))
"""


@pytest.fixture
def notebook(monkeypatch):
    """Runs a text as a cell of a notebook: in ``__main__``, which has no file, its lines where IPython has them."""

    def run(text: str) -> dict:
        main = types.ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", main)
        monkeypatch.setitem(linecache.cache, "cell-1", (len(text), None, text.splitlines(keepends=True), "cell-1"))
        exec(compile(text, "cell-1", "exec"), vars(main))
        return vars(main)

    return run


def test_a_function_of_a_notebook_takes_its_values_functions_and_classes_along(tmp_path, notebook):
    assert in_another_process(notebook(NOTEBOOK)["train"], tmp_path) == '19.5 32 7 True "a"'


def test_a_function_takes_the_values_of_the_function_around_it_along(tmp_path):
    width = 4

    def area(height):
        return width * height

    def train(run):
        print(area(2), FRAME.height)

    assert in_another_process(train, tmp_path) == "8 2"


def test_a_definition_that_needs_the_function_around_it_is_refused():
    def loud(function):
        return function

    @loud
    def train(run):
        print(run)

    with pytest.raises(SpecError, match="'train', which train uses, is defined with 'loud'"):
        make_script(train)


def test_names_that_a_function_defines_itself_are_not_sent(tmp_path):
    def train(run):
        LOCK = run.seed  # noqa: N806 - the name of something that cannot be sent
        print([LOCK + 1 for LOCK in range(2)], LOCK)

    assert "LOCK =" not in make_script(train).text.partition("def train")[0]
    assert in_another_process(train, tmp_path) == "[1, 2] 0"


def test_the_same_function_makes_the_same_script_and_another_value_another():
    def make(table):
        def train(run):
            print(table.sum(), run)

        return train

    first, again, other = (make_script(make(np.arange(3.0) + shift)) for shift in (0, 0, 1))
    assert first == again
    assert first.text != other.text and first.values != other.values


def test_the_script_refuses_a_file_of_values_that_was_changed(tmp_path):
    def train(run):
        print(TABLE, run)

    in_another_process(train, tmp_path)
    (values,) = tmp_path.glob("values-*.pickle")
    values.write_bytes(values.read_bytes()[:-1] + b"x")
    answer = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 1 and "is not the file that batchscale.measure wrote" in answer.stderr


def test_what_cannot_be_sent_is_named():
    def locked(run):
        with LOCK:
            print(run)

    with pytest.raises(SpecError, match="train uses 'LOCK', a lock that cannot be sent to worker processes"):
        make_script(locked)
    for wrong in (lambda run: run, print, 7, None):
        with pytest.raises(SpecError, match="train must be a function that is defined with def"):
            make_script(wrong)
    names: dict = {}
    exec("def typed(run): pass", names)
    with pytest.raises(SpecError, match="must have a source that Python can read"):
        make_script(names["typed"])


def test_one_name_with_two_meanings_is_refused():
    def make(value):
        def inner():
            return value

        return inner

    value = [object]
    inner = make({"other"})

    def train(run):
        print(value, inner(), run)

    with pytest.raises(SpecError, match="Found two values of 'value'"):
        make_script(train)
