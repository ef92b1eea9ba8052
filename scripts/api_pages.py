"""The API reference: a page of plain Markdown for every public package, from its docstrings.

A public package lists its public names in ``__all__``. Names that are loaded when first used are looked up,
so that the page shows what a user gets. Signatures are those of the source.
"""

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import textwrap

import batchscale

TOP = """# Python API
The public names of each package. Everything else may change without notice. Start with
[Python and notebooks](../python.md): most people need `batchscale` alone.

"""
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises")
SECTION = re.compile(rf"^({'|'.join(SECTIONS)}):\n((?:[ \t]+.*\n?|\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^(\*{0,2}[\w.\[\]]+): ", re.MULTILINE)
DOCTEST = re.compile(r"((?:^>>> .*\n?)(?:^\S.*\n?)*)+", re.MULTILINE)
INDENTED = re.compile(r"(?<=\n\n)((?:    .*\n?)+)")


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


def make_pages() -> dict[str, str]:
    """Return every page as Markdown, by its path."""
    packages = public_packages()
    rows = "".join(f"- [{package}]({package}.md): {_summary(package)}\n" for package in packages)
    pages = {f"api/{package}.md": make_page(package, names) for package, names in packages.items()}
    return {"api/index.md": TOP + rows, **pages}


def make_page(package: str, names: list[str]) -> str:
    """Return the page of a package: its docstring, then every name in the order of the alphabet.

    A name that belongs to another package is described there, and the page leads to it: one description for each.
    """
    module = importlib.import_module(package)
    parts = [f"# {package}\n{describe(inspect.getdoc(module) or '')}\n"]
    for name in _shown(names):
        where = home(package, name)
        owner = _owner(where)
        if owner in (package, None):
            parts.append(f"## {name}\n{_describe_name(getattr(module, name), where)}\n")
        else:
            parts.append(f"## {name}\nSee [{owner}]({owner}.md#{_anchor(owner, name)}).\n")
    return "\n".join(parts)


def _summary(package: str) -> str:
    text = inspect.getdoc(importlib.import_module(package)) or ""
    return text.partition("\n")[0].removeprefix(f"{package}: ")


def _shown(names: list[str]) -> list[str]:
    return sorted((name for name in names if not name.startswith("__")), key=lambda name: (name.lower(), name))


def _anchor(package: str, name: str) -> str:
    """Return the anchor of a name's heading; of names that differ in capitals alone the later ones are numbered."""
    lower = [other.lower() for other in _shown(public_packages()[package])]
    earlier = lower[: _shown(public_packages()[package]).index(name)].count(name.lower())
    return name.lower() + (f"-{earlier}" if earlier else "")


def _owner(where: str) -> str | None:
    """Return the public package that offers what is defined here; None if none does."""
    package = ".".join(where.split(".")[:2])
    offered = public_packages().get(package, [])
    return package if where in {home(package, name) for name in offered} else None


def _describe_name(value: object, where: str) -> str:
    if inspect.isclass(value):
        return _class_part(value)
    if inspect.isfunction(value):
        return f"{_code(signature(value))}\n{describe(inspect.getdoc(value) or '')}"
    if inspect.ismodule(value):
        return describe(inspect.getdoc(value) or "")
    return f"A constant of type `{type(value).__name__}`, defined as `{where}`."


def _class_part(value: type) -> str:
    node = _node(value)
    fields = [statement for statement in node.body if isinstance(statement, ast.AnnAssign)]
    lines = [ast.unparse(field) for field in fields if not ast.unparse(field.target).startswith("_")]
    members = [ast.unparse(item) for item in node.body if isinstance(item, ast.Assign) and _is_enum(value)]
    bases = f"({', '.join(map(ast.unparse, node.bases))})" if node.bases else ""
    constructor = next((item for item in _functions(node) if item.name == "__init__"), None)
    made = [_method_signature(constructor)] if constructor is not None else []
    content = "\n".join(f"    {line}" for line in [*lines, *members, *made])
    parts = [_code(f"class {node.name}{bases}" + (f":\n{content}" if content else "")), describe(value.__doc__ or "")]
    for method in _functions(node):
        text = ast.get_docstring(method)
        if text and not method.name.startswith("_"):
            parts.append(f"### {node.name}.{method.name}\n{_code(_method_signature(method))}\n{describe(text)}")
    return "\n\n".join(part.rstrip() for part in parts)


def _is_enum(value: type) -> bool:
    return any(base.__name__ in ("Enum", "StrEnum") for base in value.__mro__)


def _functions(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [item for item in node.body if isinstance(item, ast.FunctionDef)]


def _method_signature(method: ast.FunctionDef) -> str:
    decorators = {ast.unparse(decorator) for decorator in method.decorator_list}
    returned = f" -> {ast.unparse(method.returns)}" if method.returns else ""
    if any(name.endswith("property") for name in decorators):
        return f"{method.name}{returned.replace(' ->', ':')}"
    text = ast.unparse(method.args)
    bound = "cls" if "classmethod" in decorators else "self"
    return f"{method.name}({text.removeprefix(bound).removeprefix(', ').removeprefix('/, ')}){returned}"


def signature(function: object) -> str:
    """Return the signature of a function as its source has it, an argument a line if it is long."""
    node = _node(function)
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    text = f"{node.name}({ast.unparse(node.args)}){returned}"
    if len(text) <= 90:
        return text
    arguments = "".join(f"    {argument},\n" for argument in _split(ast.unparse(node.args)))
    return f"{node.name}(\n{arguments}){returned}"


def _split(arguments: str) -> list[str]:
    """Split arguments at the commas outside of brackets.

    >>> _split("a: dict[str, int], *, b=(1, 2)")
    ['a: dict[str, int]', '*', 'b=(1, 2)']
    """
    parts, depth = [""], 0
    for letter in arguments:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _node(value: object) -> "ast.FunctionDef | ast.ClassDef":
    node = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    return node


def _code(text: str) -> str:
    return f"```python\n{text}\n```\n"


def describe(docstring: str) -> str:
    r"""Return a docstring of Google's style as Markdown.

    >>> print(describe("Add.\n\nArgs:\n    a: The first.\n        It is long.\n    b: The second."))
    Add.
    <BLANKLINE>
    **Args**
    <BLANKLINE>
    - `a`: The first. It is long.
    - `b`: The second.
    """
    text = inspect.cleandoc(docstring)
    text = INDENTED.sub(_indented, text)
    text = SECTION.sub(lambda match: f"**{match[1]}**\n\n{_entries(match[2])}\n", text)
    return DOCTEST.sub(lambda match: f"\n{_code(match[0].rstrip())}", text).strip()


def _indented(match: re.Match[str]) -> str:
    """Return a block of code as one; entries of a section stay for their section."""
    text = textwrap.dedent(match[1])
    return match[1] if ENTRY.match(text) else _code(text.strip())


def _entries(block: str) -> str:
    """Return the entries of a section as a list; a text without names as it is."""
    text = textwrap.dedent(block).strip()
    if not ENTRY.match(text):
        return f"{text}\n"
    entries: list[str] = []
    for line in text.splitlines():
        if line[:1].strip():
            entries.append(ENTRY.sub(r"- `\1`: ", line))
        elif line.strip() and entries:
            entries[-1] += f" {line.strip()}"
    return "".join(f"{entry}\n" for entry in entries)
