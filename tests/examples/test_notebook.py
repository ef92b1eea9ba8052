"""The example notebook runs: its cells in one process, as a kernel runs them, and its last values are shown."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOK = EXAMPLES / "batch_size.ipynb"
KERNEL = """
import ast, json, linecache, sys, types

main = sys.modules["__main__"] = types.ModuleType("__main__")
shown = []
for number, text in enumerate(json.loads(sys.argv[1])):
    name = f"cell-{number}"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    body = ast.parse(text).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), name, "exec"), vars(main))
    if last is not None:
        value = eval(compile(ast.Expression(last.value), name, "eval"), vars(main))
        shown.append([type(value).__name__, repr(value), value._repr_html_() if hasattr(value, "_repr_html_") else ""])
print("SHOWN" + json.dumps(shown))
"""


def cells(kind: str) -> list[dict]:
    return [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def test_the_notebook_is_stored_without_outputs():
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells("code"))
    assert NOTEBOOK.stat().st_size < 20_000


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_notebook_runs_and_shows_its_curves_and_its_plan(tmp_path):
    shutil.copy(EXAMPLES / "ddsp_training_runs.csv", tmp_path)
    texts = ["".join(cell["source"]) for cell in cells("code")]
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", KERNEL, json.dumps(texts)], cwd=tmp_path, capture_output=True, text=True,
        timeout=580,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-4000:]
    shown = json.loads(answer.stdout.rpartition("SHOWN")[2])
    assert [kind for kind, _, _ in shown] == [
        "Curve", "tuple", "Curve", "DataFrame", "LayerChart", "TrainingPlan",
    ]  # fmt: skip
    assert all('class="batchscale"' in html for kind, _, html in shown if kind.endswith(("Curve", "Plan")))
    steps = [row for row in shown[3][1].splitlines() if row.startswith("│ ") and row[2].isdigit()]
    assert len(steps) == 5  # a row for every batch size
