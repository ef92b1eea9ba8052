"""How hard a checkout of batchscale is to read, in figures: a Markdown table with a column per checkout.

``python scripts/reading_figures.py [CHECKOUT ...]`` measures the given checkouts, by default this one. Files, lines,
names and imports come from the source. The files and functions that a run, a report, a web page and an own script pass
come from running these commands with a profiler in every process; ``--static`` leaves them out. Calls while a module is
imported do not count, nor do class bodies, lambdas and comprehensions.
"""

import argparse
import ast
import collections
import contextlib
import http.client
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
SMALL_LINES = 75
QUESTION = re.compile(r"(What|Which|Whether|How|Where|Who|Whose|When|Why)\b")
ODD_NAMES = {
    *("found", "one", "known", "there", "wanted", "chosen", "shown", "kept", "told", "said", "given", "asked", "heard"),
    *("own", "meant", "left"),
}
PROFILER = """
import os, sys, threading
folder, source = os.environ.get("READING_TRACE"), os.environ.get("READING_SOURCE", "")
if folder:
    handle = os.open(os.path.join(folder, f"{os.getpid()}.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    seen = set()

    def is_import(frame):
        while frame is not None:
            if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
                return True
            frame = frame.f_back
        return False

    def profile(frame, event, argument):
        code = frame.f_code
        if event != "call" or code in seen or not code.co_filename.startswith(source):
            return
        if not code.co_flags & 1 or code.co_name.startswith("<"):  # a class body, a lambda or the like
            seen.add(code)
        elif not is_import(frame):
            seen.add(code)
            os.write(handle, f"{code.co_filename}\\t{code.co_firstlineno}\\t{code.co_name}\\n".encode())

    threading.setprofile(profile)
    sys.setprofile(profile)
"""
EXPERIMENT = """
goal = "val/classification_error < 0.5"
batch_sizes = [16, 64]
trials = 2
budget = { steps = 20 }
evaluation = { count = 4 }
workload = "digits/fc_64/sgd"
"""
SCRIPT = """
import sys
steps, rate = int(sys.argv[1]), float(sys.argv[2])
for step in range(0, steps + 1):
    print(f"step={step} val/loss={1 / (1 + rate * step)}", flush=True)
"""
SCRIPT_EXPERIMENT = """
goal = "val/loss < 0.5"
batch_sizes = [16]
trials = 2
stop = "budget"
budget = { steps = 8 }
evaluation = { every = 2 }
workload = "own/script/sgd"
[search.space.learning_rate]
type = "DOUBLE"
scale = "LOG_SCALE"
min_value = 0.1
max_value = 1.0
[trainer]
command = [PYTHON, "train.py", "{max_steps}", "{learning_rate}", "{batch_size}"]
workers = 1
[trainer.reports]
pattern = "step={step} val/loss={val/loss}"
"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure how hard checkouts of batchscale are to read.")
    parser.add_argument("checkouts", nargs="*", type=Path, default=[HERE])
    parser.add_argument("--static", action="store_true", help="Run no commands.")
    arguments = parser.parse_args()
    columns = []
    for checkout in arguments.checkouts:
        figures = source_figures(checkout.resolve())
        columns.append(figures if arguments.static else figures | command_figures(checkout.resolve()))
    print(f"| figure | {' | '.join(str(checkout) for checkout in arguments.checkouts)} |")
    print(f"|---|{'---|' * len(columns)}")
    for name in columns[0]:
        print(f"| {name} | {' | '.join(column[name] for column in columns)} |")


def source_figures(checkout: Path) -> dict[str, str]:
    """Return the figures of the source by name, as text."""
    files = sorted((checkout / "src" / "batchscale").rglob("*.py"))
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in files}
    sizes = [count for path, count in lines.items() if path.name != "__init__.py"]
    imports = read_imports(checkout / "src")
    return {
        "files": f"{len(files):,}",
        "lines": f"{sum(lines.values()):,}",
        "lines of a file without `__init__`, median and mean": f"{statistics.median(sizes):.0f}, "
        f"{statistics.mean(sizes):.0f}",
        "glossary rows": str(count_glossary_rows(checkout)),
        "public names": str(count_public_names(checkout)),
        "docstrings that begin with a question word": f"{100 * question_share(files):.1f} %",
        "local names such as found, one, known": f"{100 * odd_name_share(files):.1f} %",
        "import depth": str(import_depth(imports)),
        f"modules of at most {SMALL_LINES} lines with one user": str(count_fragments(checkout / "src", imports)),
    }


def question_share(files: Iterable[Path]) -> float:
    """Return the share of docstrings that begin with a question word."""
    kinds = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef, ast.Module)
    texts = [ast.get_docstring(node) for node in _nodes(files) if isinstance(node, kinds)]
    docstrings = [text for text in texts if text]
    return sum(QUESTION.match(text) is not None for text in docstrings) / len(docstrings)


def odd_name_share(files: Iterable[Path]) -> float:
    """Return the share of assigned names that describe nothing, such as ``found``."""
    names = [node.id for node in _nodes(files) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return sum(name in ODD_NAMES for name in names) / len(names)


def _nodes(files: Iterable[Path]) -> Iterator[ast.AST]:
    for path in files:
        yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def count_glossary_rows(checkout: Path) -> int:
    """Return the number of terms in the glossary."""
    glossary = checkout / "docs" / "glossary.md"
    return len(re.findall(r"^\| (?!word|---)", glossary.read_text(encoding="utf-8"), re.M)) if glossary.exists() else 0


def count_public_names(checkout: Path) -> int:
    """Return the number of names in the ``__all__`` of all packages."""
    code = (
        "import importlib, pkgutil, batchscale\n"
        "packages = [m.name for m in pkgutil.walk_packages(batchscale.__path__, 'batchscale.') if m.ispkg]\n"
        "packages = [batchscale, *map(importlib.import_module, packages)]\n"
        "print(sum(len(getattr(package, '__all__', ())) for package in packages))"
    )
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, env=_environment(checkout), capture_output=True, text=True, check=True)
    return int(output.stdout.split()[-1])


def read_imports(source: Path) -> dict[str, set[str]]:
    """Return the modules of batchscale that each module imports, at its top or inside functions; types do not count.

    A name that is imported from a package counts as an import of the module that defines it.
    """
    paths = {_module_name(source, path): path for path in (source / "batchscale").rglob("*.py")}
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in paths.items()}
    definitions = {
        f"{name}.{alias.asname}": node.module
        for name, tree in trees.items()
        if paths[name].name == "__init__.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in paths
        for alias in node.names
    }
    return {name: _imported(tree, paths.keys(), definitions) - {name} for name, tree in trees.items()}


def _module_name(source: Path, path: Path) -> str:
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def _imported(tree: ast.Module, modules: Collection[str], definitions: Mapping[str, str]) -> set[str]:
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    imported = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names if alias.name in modules}
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                full_name = f"{node.module}.{alias.name}"
                imported.add(full_name if full_name in modules else definitions.get(full_name, node.module))
    return imported


def import_depth(imports: Mapping[str, set[str]]) -> int:
    """Return the number of modules in the longest chain of imports."""

    @cache
    def depth(module: str) -> int:
        return 1 + max(map(depth, imports[module]), default=0)

    for module in TopologicalSorter(imports).static_order():  # the imported ones first; raises an error for a cycle
        depth(module)
    return max(map(depth, imports))


def count_fragments(source: Path, imports: Mapping[str, set[str]]) -> int:
    """Return the number of small modules with exactly one importer."""
    users = collections.Counter(target for targets in imports.values() for target in targets)
    small = [
        name
        for name in imports
        if (path := source / Path(*name.split(".")).with_suffix(".py")).exists()
        and path.read_text(encoding="utf-8").count("\n") <= SMALL_LINES
    ]
    return sum(users[name] == 1 for name in small)


def command_figures(checkout: Path) -> dict[str, str]:
    """Return the files and functions that commands pass, by command."""
    figures = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(PROFILER, encoding="utf-8")
        (folder / "run.toml").write_text(EXPERIMENT, encoding="utf-8")
        (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
        (folder / "script.toml").write_text(SCRIPT_EXPERIMENT.replace("PYTHON", repr(sys.executable)), encoding="utf-8")
        run = ("run", "run.toml", "--out", "records/run", "--workers", "1", "--quiet")
        script = ("run", "script.toml", "--out", "records/script", "--quiet")
        figures["the loop of a run passes (inline, fake engine)"] = _trace(checkout, folder, _loop_command(checkout))
        tasks = {"a run passes": run, "a report passes": ("report", "records/run", "--out", "report.html")}
        for label, command in tasks.items():
            figures[label] = _trace(checkout, folder, command)
        figures["a web start with one page passes"] = _trace(checkout, folder, ("web", "records"), page=True)
        figures["the run of an own script passes"] = _trace(checkout, folder, script)
    return figures


def _loop_command(checkout: Path) -> tuple[str, ...]:
    """Return the options of Python for a run without training: the checkout's tests have a fake engine."""
    fakes = checkout / "tests" / "fakes"
    module = next(path.stem for path in fakes.glob("*.py") if "def run_fake(" in path.read_text(encoding="utf-8"))
    code = (
        f"import sys; sys.path.insert(0, {str(fakes.resolve())!r}); from pathlib import Path; import {module} as fakes"
    )
    return "-c", f"{code}; fakes.run_fake(Path('records/loop'))"


def _trace(checkout: Path, folder: Path, command: tuple[str, ...], page: bool = False) -> str:
    traces = Path(tempfile.mkdtemp(dir=folder))
    source = checkout / "src" / "batchscale"
    environment = _environment(checkout, folder)
    environment |= {"READING_TRACE": str(traces), "READING_SOURCE": str(source), "JAX_PLATFORMS": "cpu"}
    start = () if command[0] == "-c" else ("-m", "batchscale")
    arguments = [sys.executable, *start, *command]
    if page:
        _visit_page(arguments, folder, environment)
    else:
        result = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if result.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{result.stderr}")
    functions = {line for trace in traces.iterdir() for line in trace.read_text(encoding="utf-8").splitlines()}
    files = {line.partition("\t")[0] for line in functions}
    return f"{len(files)} files, {len(functions):,} functions"


def _visit_page(arguments: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Start the server, open the first page, and stop the server."""
    token = folder / "token"
    token.write_text("t" * 43, encoding="utf-8")
    token.chmod(0o600)
    arguments = [*arguments, "--port", "0", "--token-file", str(token), "--state", str(folder / "state")]
    with subprocess.Popen(arguments, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = re.search(r"http://([^/\s]+)", server.stdout.readline())
        if address is None:
            raise SystemExit("The server did not start.")
        headers = {"Authorization": f"Bearer {token.read_text()}"}
        for _ in range(100):  # the address is printed before the server listens
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection(address[1])
                connection.request("GET", "/", headers=headers)
                connection.getresponse().read()
                break
            time.sleep(0.1)
        server.send_signal(signal.SIGINT)


def _environment(checkout: Path, *folders: Path) -> dict[str, str]:
    paths = os.pathsep.join(map(str, (*folders, checkout / "src")))
    return {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}


if __name__ == "__main__":
    main()
