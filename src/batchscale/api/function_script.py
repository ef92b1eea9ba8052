"""A Python function as a training script: the function and everything that it uses, in one file.

Worker processes cannot see the functions of a notebook. So the script has their source, imports what can be imported,
and reads other values (arrays, objects) from a pickle file beside it. Both are made by this process from the user's own
objects; the script compares the file with its checksum, so nothing else is ever unpickled (decision 0212).
"""

import ast
import builtins
import hashlib
import importlib.machinery
import inspect
import io
import linecache
import pickle
import symtable
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

from batchscale.errors import SpecError, one_line
from batchscale.formatting import size

MAX_VALUES_BYTES = 10**9
MAX_LITERAL = 200
NEXT_VALUE = "_batchscale_next_value"

_HEAD = '''\
"""Written by batchscale.measure: the function {name} with everything that it uses."""
{future}

def _batchscale_start():
    """Take the working folder and the import path of the process that measures; return a reader of the values."""
    import hashlib, io, json, os, pathlib, pickle, sys
    folder = pathlib.Path(__file__).resolve().parent
    process = json.loads((folder / "process.json").read_text(encoding="utf-8"))
    sys.path[:] = process["path"]
    os.chdir(process["folder"])
    file, digest = {values!r}
    content = (folder / file).read_bytes() if file else b""
    if hashlib.sha256(content).hexdigest() != digest:
        raise SystemExit(f"{{file}} is not the file that batchscale.measure wrote. Call measure again.")
    stream = io.BytesIO(content)
    return lambda: pickle.load(stream)


_batchscale_next_value = _batchscale_start()
'''
_TAIL = """

if __name__ == "__main__":
    from batchscale import trial as _batchscale_trial

    {name}(_batchscale_trial.start())
"""


@dataclass(frozen=True)
class FunctionScript:
    """The text of a script, and the name and content of the file of values that it reads; no name without values."""

    text: str
    values_file: str
    values: bytes


def make_script(function: Callable[..., Any]) -> FunctionScript:
    """Return the script that calls a function with the trial to train.

    Raises:
        SpecError: it is no function with a source, or it uses something that no other process can have.
    """
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        raise SpecError(
            "train must be a function that is defined with def and takes the run: def train(run). Found "
            f"{one_line(repr(function))}."
        )
    parts = _Parts()
    parts.bind(function.__name__, function)
    values = parts.values.getvalue()
    digest = hashlib.sha256(values).hexdigest()
    file = f"values-{digest[:16]}.pickle" if values else ""
    future = "from __future__ import annotations\n" if parts.needs_future else ""
    head = _HEAD.format(name=function.__name__, future=future, values=(file, digest))
    return FunctionScript(head + "\n".join(parts.lines) + _TAIL.format(name=function.__name__), file, values)


class _Parts:
    """The lines of a script, each after those that it needs."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.values = io.BytesIO()
        self.needs_future = False
        self._bound: dict[str, Any] = {}

    def bind(self, name: str, value: Any, chains: tuple[tuple[str, ...], ...] = ()) -> None:
        """Add the lines that give a name its value. ``chains`` are the attributes that are read from a module."""
        if isinstance(value, ModuleType):
            for module in _used_modules(value, chains):
                self._add_line(f"import {module}")
        if name in self._bound:
            if self._bound[name] is not value and not _is_equal_literal(self._bound[name], value):
                raise SpecError(
                    f"Every name that train uses must have one meaning. Found two values of '{name}', in different "
                    "modules or functions; rename one."
                )
            return
        self._bound[name] = value
        if isinstance(value, ModuleType):
            self._add_line(f"import {value.__name__} as {name}")
        elif _is_importable(value):
            self._add_line(f"from {value.__module__} import {value.__name__} as {name}{_checksum(value)}")
        elif isinstance(value, FunctionType | type) or _is_decorated(name, value):
            self._define(name, value)
        elif _is_literal(value):
            self._add_line(f"{name} = {value!r}")
        else:
            self._store(name, value)

    def _add_line(self, line: str) -> None:
        if line not in self.lines:
            self.lines.append(line)

    def _define(self, name: str, value: Any) -> None:
        """Add the source of a function or a class, after all that it uses."""
        own_name = value.__name__
        if own_name != name:
            self.bind(own_name, value)
            self._add_line(f"{name} = {own_name}")
            return
        source, node = _read_source(value)
        names = _outside_names(value)
        chains = _attribute_chains(node)
        for used in _free_names(source):
            if used != name and used in names:
                self.bind(used, names[used], tuple(chain[1:] for chain in chains if chain[0] == used))
        lost = [used for used in _free_names(source, inner=False) if used not in names and not hasattr(builtins, used)]
        if lost:
            raise SpecError(
                f"'{name}', which train uses, is defined with '{lost[0]}', a name of the function around it. Define "
                f"'{name}' at the top level of a notebook or a module."
            )
        code = getattr(inspect.unwrap(value), "__code__", None)
        self.needs_future |= isinstance(code, CodeType) and bool(code.co_flags & 0x1000000)  # CO_FUTURE_ANNOTATIONS
        self.lines.append(f"\n\n{source}")

    def _store(self, name: str, value: Any) -> None:
        """Add a value to the file of values, after the classes and functions of the notebook that it refers to."""
        content = io.BytesIO()
        try:
            _Pickler(content, self).dump(value)
        except SpecError:
            raise
        except Exception as error:  # noqa: BLE001 - objects raise what they like when they are pickled
            raise SpecError(
                f"train uses '{name}', a {type(value).__name__} that cannot be sent to worker processes "
                f"({one_line(error, 200)}). Create it inside train, or in a function that train calls."
            ) from None
        self.values.write(content.getvalue())
        if self.values.tell() > MAX_VALUES_BYTES:
            raise SpecError(
                f"The values that train uses may take {size(MAX_VALUES_BYTES)} at most: every trial reads them. Found "
                f"more, with '{name}'; read the data in train, or in a function that train calls."
            )
        self._add_line(f"{name} = {NEXT_VALUE}()")


class _Pickler(pickle.Pickler):
    """Pickles a value, and defines the classes and functions of the notebook that it refers to."""

    def __init__(self, file: io.BytesIO, parts: _Parts) -> None:
        super().__init__(file, protocol=5)
        self._parts = parts

    def reducer_override(self, value: Any) -> Any:
        """Define what a reader would look up in the script; everything is pickled as usual."""
        if isinstance(value, FunctionType | type) and value.__module__ == "__main__" and "." not in value.__qualname__:
            self._parts.bind(value.__name__, value)
        return NotImplemented


# --- kinds of values --------------------------------------------------------------------------------------------


def _is_importable(value: Any) -> bool:
    """True if another process finds this function or class by its module and name."""
    if not isinstance(value, FunctionType | type) or value.__module__ in (None, "__main__"):
        return False
    module = sys.modules.get(value.__module__)
    if getattr(module, value.__name__, None) is not value:
        return False
    package = value.__module__.partition(".")[0]
    return package in sys.builtin_module_names or importlib.machinery.PathFinder.find_spec(package) is not None


def _checksum(value: Any) -> str:
    """Return a comment with the checksum of a module of the user's own, so that a changed module is another script."""
    path = getattr(sys.modules[value.__module__], "__file__", None)
    if path is None or "site-packages" in path or path.startswith(sys.base_prefix):
        return ""
    with open(path, "rb") as file:  # noqa: PTH123 - the path may be inside an archive, which open refuses too
        return f"  # {hashlib.sha256(file.read()).hexdigest()[:16]}"


def _is_decorated(name: str, value: Any) -> bool:
    """True for the object that a decorator made of a function of this name, such as jax.jit: its source has both."""
    inner = getattr(value, "__wrapped__", None)
    return isinstance(inner, FunctionType) and inner.__name__ == name and "@" in _source_text(inner).split("def ")[0]


def _is_literal(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_literal, value)) and len(repr(value)) <= MAX_LITERAL
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return False
    return value is None or (type(value) in (bool, int, float, str) and len(repr(value)) <= MAX_LITERAL)


def _is_equal_literal(first: Any, second: Any) -> bool:
    return _is_literal(first) and _is_literal(second) and repr(first) == repr(second)


def _used_modules(module: ModuleType, chains: tuple[tuple[str, ...], ...]) -> Iterator[str]:
    """Yield the submodules that attributes of a module lead to: ``xml.etree`` is there only if it is imported."""
    for chain in chains:
        current = module
        for name in chain:
            inner = getattr(current, name, None)
            if not isinstance(inner, ModuleType) or inner.__name__ != f"{current.__name__}.{name}":
                break
            current = inner
            yield current.__name__


# --- source -----------------------------------------------------------------------------------------------------


def _read_source(value: Any) -> tuple[str, ast.AST]:
    """Return the source of a function or class with its decorators, and its syntax tree."""
    text = _source_text(inspect.unwrap(value) if not isinstance(value, type) else value)
    try:
        body = ast.parse(text).body
    except SyntaxError as error:
        raise SpecError(
            f"'{value.__name__}', which train uses, must be plain Python. Found line {error.lineno} of it, "
            f"{one_line(repr(error.text))}; a magic command of a notebook is for cells alone."
        ) from None
    if len(body) != 1 or not isinstance(body[0], ast.FunctionDef | ast.ClassDef):
        raise SpecError(
            f"'{value.__name__}', which train uses, must be defined with def or class. Found "
            f"{one_line(repr(text.strip()))}."
        )
    return text.strip() + "\n", body[0]


def _source_text(value: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(value))
    except (OSError, TypeError):
        text = _class_text(value) if isinstance(value, type) else None
    if text is None:
        raise SpecError(
            f"'{value.__name__}', which train uses, must have a source that Python can read: a file or a cell of a "
            "notebook. Found none, as for code that is typed into an interactive shell; write it to a file."
        )
    return text


def _class_text(kind: type) -> str | None:
    """Return the source of a class of a notebook, which ``inspect`` finds from Python 3.13 on only."""
    functions = [value for value in vars(kind).values() if isinstance(value, FunctionType)]
    files = [function.__code__.co_filename for function in functions]
    cells = [name for name, entry in linecache.cache.items() if len(entry) == 4 and entry[1] is None]
    for file in dict.fromkeys([*files, *reversed(cells)]):
        text = "".join(linecache.getlines(file))
        try:
            nodes = ast.parse(text).body
        except SyntaxError:
            continue
        for node in reversed(nodes):
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                return "\n".join(text.splitlines()[first - 1 : node.end_lineno]) + "\n"
    return None


def _outside_names(value: Any) -> dict[str, Any]:
    """Return the names that a function or class can see: those of its module, and of the functions around it."""
    functions = [value] if not isinstance(value, type) else list(vars(value).values())
    functions = [inspect.unwrap(item) for item in functions if callable(item)]
    module = sys.modules.get(value.__module__ or "")
    names = dict(vars(module)) if module is not None else {}
    functions = [item for item in functions if isinstance(item, FunctionType) and item.__module__ == value.__module__]
    for function in functions:
        names |= function.__globals__
    for function in functions:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        names |= {name: cell.cell_contents for name, cell in cells if name != "__class__" and _is_filled(cell)}
    return names


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _free_names(source: str, inner: bool = True) -> list[str]:
    """Return the names that a piece of source reads and does not define; only to define it, without its ``inner`` ones.

    >>> _free_names("def f(x, scale=SCALE): return [g(np.exp(z)) for z in x]")
    ['SCALE', 'g', 'np']
    """
    names: list[str] = []

    def visit(table: symtable.SymbolTable, is_top: bool) -> None:
        for symbol in table.get_symbols():
            outside = not symbol.is_assigned() if is_top else symbol.is_global()
            if outside and (symbol.is_referenced() or symbol.is_global()):
                names.append(symbol.get_name())
        for child in table.get_children() if inner else ():
            visit(child, False)

    visit(symtable.symtable(source, "function", "exec"), True)
    return [name for name in dict.fromkeys(names) if not name.startswith("__")]


def _attribute_chains(node: ast.AST) -> list[tuple[str, ...]]:
    """Return the dotted names of a syntax tree as tuples of their parts."""
    chains = []
    for item in ast.walk(node):
        parts: list[str] = []
        while isinstance(item, ast.Attribute):
            parts.append(item.attr)
            item = item.value
        if isinstance(item, ast.Name) and parts:
            chains.append((item.id, *reversed(parts)))
    return sorted(set(chains))
