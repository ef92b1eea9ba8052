"""The reference of the experiment file, docs/experiment-file.md, from the tables that check the file.

Types, limits and defaults come from the JSON schema of ``batchscale.spec.tables``, descriptions from the text under
each key there, and the defaults of keys that are left out from the experiment that the shortest file describes.
"""

import ast
import inspect
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel

from batchscale.spec import tables
from batchscale.spec.file import parse_experiment
from batchscale.spec.space import CONFIG_KEYS, ParameterType, Scale

SHORTEST = 'goal = "val/loss < 1"\n[workload]\ndataset = "d"\nmodel = "m"\noptimizer = "o"\n'
TOP = """# The experiment file
Every key that an experiment file may have. `batchscale init` writes a commented example, `batchscale validate` checks a
file and shows what it would run. An unknown key is an error, and so is a value of another type. `make pages` writes
this page from the code that checks the file.

Only `goal` and the three names of `[workload]` are required; of a `[trainer]` table its `command`, and of an
`[averaging]` table its `half_life`.
"""
RANGES = """
## A range: `[search.space]`, `[search.per_batch_size.B]`
Each key is a metaparameter, each value a table such as
`{ type = "DOUBLE", scale = "LOG_SCALE", min_value = 1e-4, max_value = 10.0 }`, as in `study.json`.

| key | value | default | meaning |
|---|---|---|---|
"""


def make_page() -> str:
    """Return the whole page as Markdown."""
    sections = [_section(name, table) for name, table in _tables(tables.ExperimentTable, "")]
    return TOP + "".join(sections) + RANGES + "".join(f"{line}\n" for line in _range_rows())


def _tables(table: type[BaseModel], prefix: str) -> Iterator[tuple[str, type[BaseModel]]]:
    yield prefix, table
    for key, field in table.model_fields.items():
        inner = inner_table(field.annotation)
        if inner is not None:
            yield from _tables(inner, f"{prefix}.{key}".lstrip("."))


def inner_table(annotation: object) -> type[BaseModel] | None:
    """Return the table that a key holds, which may be optional; None for a key that holds a value."""
    kinds = (annotation, *get_args(annotation))
    return next((kind for kind in kinds if inspect.isclass(kind) and issubclass(kind, BaseModel)), None)


def _section(prefix: str, table: type[BaseModel]) -> str:
    title = f"`[{prefix}]`" if prefix else "At the top"
    described = _descriptions(table)
    rows = [
        f"| `{key}` | {_describe(schema)} | {_default(prefix, key, schema, table)} | {described[key]} |"
        for key, schema in table.model_json_schema()["properties"].items()
        if inner_table(table.model_fields[key].annotation) is None
    ]
    head = f"\n## {title}\n{inspect.getdoc(table)}\n\n| key | value | default | meaning |\n|---|---|---|---|\n"
    return head + "".join(f"{row}\n" for row in rows)


def _descriptions(table: type[BaseModel]) -> dict[str, str]:
    """Return the text under each key of a table: the string after its declaration."""
    body = ast.parse(inspect.getsource(table)).body[0].body
    texts = {}
    for declared, text in itertools.pairwise(body):
        if isinstance(declared, ast.AnnAssign) and isinstance(text, ast.Expr):
            texts[declared.target.id] = inspect.cleandoc(text.value.value)
    return texts


def _describe(schema: Mapping[str, Any]) -> str:
    """Describe a JSON schema.

    >>> _describe({"type": "integer", "minimum": 1, "maximum": 1000})
    'whole number, 1 to 1,000'
    >>> _describe({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "all", "type": "string"}]})
    'number above 0, or `"all"`'
    """
    if "anyOf" in schema:
        return ", or ".join(_describe(part) for part in schema["anyOf"] if part.get("type") != "null")
    if "const" in schema:
        return f'`"{schema["const"]}"`'
    if "enum" in schema:
        return ", ".join(f'`"{value}"`' for value in schema["enum"])
    kinds = {"integer": "whole number", "number": "number", "string": "text", "boolean": "`true`, `false`"}
    kinds |= {"array": "list", "object": "table"}
    return kinds[schema["type"]] + _limits(schema)


def _limits(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if above is not None and high is not None:
        return f" above {above:,} up to {high:,.0f}"
    if low is not None and high is not None:
        return f", {low:,} to {high:,}"
    if low is not None and below is not None:
        return f", {low:,} to less than {_number(below)}"
    return f" above {above:,}" if above is not None else ""


def _number(value: float) -> str:
    power = int(value).bit_length() - 1
    return f"2^{power}" if value > 1e6 and value == 2**power else f"{value:,}"


def _default(prefix: str, key: str, schema: Mapping[str, Any], table: type[BaseModel]) -> str:
    if table.model_fields[key].is_required():
        return "required"
    default = _implied().get(f"{prefix}.{key}".lstrip("."), schema["default"])
    if default is None or default in ({}, []):
        return "–" if default is None else "empty"
    return f"`{json.dumps(default)}`"  # which is TOML as well, for texts, numbers and truth values


def _implied() -> dict[str, object]:
    """Return the defaults that the experiment of the shortest file has and the tables lack."""
    shortest = parse_experiment(SHORTEST)
    sizes = shortest.batch_sizes.sizes
    return {
        "batch_sizes": f"{sizes[0]}..{sizes[-1]}",
        f"budget.{shortest.budget.unit}": shortest.budget.amount,
        "budget.at_least_steps": shortest.budget.at_least_steps,
        "evaluation.count": shortest.evaluation.count,
        "evaluation.spacing": str(shortest.evaluation.spacing),
    }


def _range_rows() -> list[str]:
    def names(kind: type[ParameterType] | type[Scale]) -> str:
        return ", ".join(f'`"{member}"`' for member in kind)

    rows = {
        "type": (names(ParameterType), '`"DOUBLE"`', "The values it takes: any, whole ones, or the feasible points."),
        "scale": (
            names(Scale), '`"LINEAR_SCALE"`',
            "The coordinate in which points are uniform: the value, its logarithm, the logarithm of 1 - value.",
        ),
        "min_value": ("number", "required unless DISCRETE", "The lower end; above 0 on LOG_SCALE."),
        "max_value": ("number", "required unless DISCRETE", "The upper end; below 1 on REVERSE_LOG_SCALE."),
        "feasible_points": ("list of numbers", "required for DISCRETE", "The values of a DISCRETE metaparameter."),
    }  # fmt: skip
    return [f"| `{key}` | {' | '.join(rows[key])} |" for key in CONFIG_KEYS]
