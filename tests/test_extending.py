"""docs/extending.md, held to its word: the files on the page are a plug-in, installed in a temporary folder and run.

A fence that names a file (``python my_parts/rings.py``) is written to it. Nothing of batchscale is touched.
"""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from study_fakes import read_values
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.figures import kinds
from batchscale.spec.space import Bounds, declare_bounds

ROOT = Path(__file__).parents[1]
FILE = re.compile(r"^```\w+ (my_\w+/[\w.]+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ONE_WORKER = ("--workers", "1")  # a second one would only load and compile the same
PARTS = {"datasets": "rings", "models": "bumps", "optimizers": "soft_sign"}


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """A folder with the page's package, and the metadata that an installer would write."""
    folder = tmp_path_factory.mktemp("site")
    for name, text in FILE.findall((ROOT / "docs" / "extending.md").read_text(encoding="utf-8")):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    install(folder, "my_parts")
    return folder


def install(folder, module):
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[batchscale.plugins]\n{module} = {module}\n")


def python(folder, *arguments):
    path = os.pathsep.join([str(folder), str(ROOT / "src")])
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, "BATCHSCALE_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_the_parts_are_listed_and_their_info_need_no_jax(plugin):
    answer = python(plugin, "-m", "batchscale", "workloads", "--json")
    assert answer.returncode == 0, answer.stderr
    parts = json.loads(answer.stdout)["parts"]
    assert all(name in parts[kind] for kind, name in PARTS.items())
    code = (
        "import sys; from batchscale.spec import *; from batchscale.workloads.registry import workload_info\n"
        "info = workload_info(WorkloadSpec(WorkloadName('rings', 'bumps', 'soft_sign')))\n"
        "assert info.num_train_examples == 512 and 'hesitation' in info.metrics, info\n"
        "from batchscale.spec.space import natural_bounds\n"
        "assert natural_bounds('sharpness').low_open\n"
        "sys.exit('jax' in sys.modules)"
    )
    answer = python(plugin, "-c", code)
    assert answer.returncode == 0, answer.stderr


@pytest.fixture(scope="module")
def records(plugin):
    """What the page's experiment measured, with a data set, a model, an optimizer and a metric of the page."""
    out = plugin / "records"
    answer = python(plugin, "-m", "batchscale", "run", plugin / "my_parts" / "rings.toml", "--out", out, *ONE_WORKER)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return out


@pytest.mark.timeout(300)
def test_an_experiment_runs_with_one_of_each(records):
    measured = [path.read_text().splitlines()[0] for path in records.glob("rings/bumps/soft_sign/*/*/measurements.csv")]
    assert len(measured) == 4
    assert all("val/hesitation" in header.split(",") for header in measured)


def test_a_chart_is_one_file(plugin, records, tmp_path, monkeypatch):
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(plugin / "my_charts")])
    assert "diverged-trials" in kinds.kind_names()
    out, data = tmp_path / "chart.json", tmp_path / "chart.csv"
    goal = "val/hesitation < 0.4"
    arguments = ["figure", "diverged-trials", records, "--out", out, "--csv", data, "--goal", goal]
    answer = CliRunner().invoke(make_app(), [str(argument) for argument in arguments])
    assert answer.exit_code == 0, answer.output + repr(answer.exception)
    assert data.read_text().splitlines()[0] == "panel,batch_size,diverged,note"
    assert json.loads(out.read_text())


MAKE_TURNS = """    if settings.runner == "turns":
        return TurnsRunner(setup)
"""
LINES = {  # what the page says to add: behind which line of which file
    "spec/experiment.py": ('    RACE = "race"\n', '    HALF = "half"\n'),
    "run/settings.py": ('RUNNERS = ("local", ', '"turns", '),
    "run/make_runner.py": ("        return settings.make_runner(setup)\n", MAKE_TURNS),
}
TURNS_IMPORT = ("from batchscale.spec.plan import Plan\n", "from batchscale.workers.turns import TurnsRunner\n")
SEARCH = """
import sys
from pathlib import Path
from study_fakes import fake_space, run_fake
from batchscale.spec import StopRule, parse_experiment

lines = ['goal = "val/error < 0.2"', 'workload = "a/b/sgd"', 'stop = "half"', "batch_sizes = [8]", "budget.steps = 9"]
assert parse_experiment(chr(10).join(lines)).stop is StopRule.HALF
run_fake(Path(sys.argv[1]), runner=sys.argv[2], rule=StopRule(sys.argv[3]))
"""


@pytest.fixture(scope="module")
def extended(plugin, tmp_path_factory):
    """A copy of batchscale with the page's stop rule and runner in their places, and the lines that name them."""
    assert MAKE_TURNS in (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    package = tmp_path_factory.mktemp("extended") / "batchscale"
    shutil.copytree(ROOT / "src" / "batchscale", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(plugin / "my_rules" / "half.py", package / "study" / "stop_rules")
    shutil.copy(plugin / "my_runners" / "turns.py", package / "workers")
    for file, (line, more) in [*LINES.items(), ("run/make_runner.py", TURNS_IMPORT)]:
        text = (package / file).read_text(encoding="utf-8")
        assert text.count(line) == 1
        (package / file).write_text(text.replace(line, line + more), encoding="utf-8")
    return package.parent


def search(extended, out, runner, rule):
    """The trials of a whole search of the copy, with its rule, on its runner."""
    path = os.pathsep.join([str(extended), str(ROOT / "tests" / "fakes")])
    words = [sys.executable, "-c", SEARCH, str(out), runner, rule]
    answer = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    return read_values(out)


def test_a_stop_rule_is_one_file_and_its_name(extended, tmp_path):
    trials = search(extended, tmp_path, "inline", "half").values()
    assert len(trials) == 12 and {trial["status"] for trial in trials} == {"COMPLETE"}
    ends = {(trial["own"]["stop_reason"], trial["steps"] < 100) for trial in trials}
    assert ends == {("goal", True), ("budget", False)}
    assert max(trial["steps"] for trial in trials) == 100  # of a budget of 200


def test_a_runner_is_one_file_its_name_and_what_makes_it(extended, tmp_path):
    trials = search(extended, tmp_path / "a", "turns", "race")
    assert len(trials) == 12
    assert trials == search(extended, tmp_path / "b", "inline", "race")


def test_a_command_is_one_file_and_a_line(plugin, records, monkeypatch):
    monkeypatch.syspath_prepend(plugin / "my_commands")
    app = make_app()
    app.command("count")(importlib.import_module("count").count)
    answer = CliRunner().invoke(app, ["count", str(records)])
    assert (answer.exit_code, answer.stdout.strip()) == (0, "4")


def test_a_plug_in_brings_a_command(plugin, records):
    answer = python(plugin, "-m", "batchscale", "count", records)
    assert (answer.returncode, answer.stdout.strip()) == (0, "4"), answer.stderr
    assert "Count the trials" in python(plugin, "-m", "batchscale", "--help").stdout


PAGE = """
import sys
from pathlib import Path
from starlette.testclient import TestClient
from batchscale.web.auth import Auth
from batchscale.web.app import create_app
from batchscale.web.settings import WebSettings

folder = Path(sys.argv[1])
access = Auth(folder / "state")
token = (folder / "state" / "token").read_text().strip()
app = create_app(WebSettings((folder,), folder / "state", train_options=frozenset()), access)
client = TestClient(app, base_url="http://127.0.0.1:8765", headers={"authorization": f"Bearer {token}"})
print(client.get("/folders").text, "Folders</a>" in client.get("/").text)
"""


def test_a_plug_in_brings_a_page(plugin, tmp_path):
    answer = python(plugin, "-c", PAGE, tmp_path)
    assert answer.stdout.strip() == f"{tmp_path.name} True", answer.stderr


REGISTERED = """
from my_parts.soft_sign import rule
from batchscale.workloads import OptimizerDeclaration, register
from batchscale.workloads.optimizers.declaration import make_range

range_ = make_range("learning_rate", 1e-3, 1.0)
register(OptimizerDeclaration("softer", {"learning_rate": None, "sharpness": 1.0}, (range_,), rule))
"""


def test_a_part_may_be_registered_by_the_file_of_an_experiment(plugin, tmp_path):
    (tmp_path / "softer.py").write_text(REGISTERED)
    text = (plugin / "my_parts" / "rings.toml").read_text().replace("soft_sign", "softer")
    experiment = tmp_path / "softer.toml"
    experiment.write_text(text.replace("[workload]", '[workload]\nfile = "softer.py"'))
    answer = python(plugin, "-m", "batchscale", "run", experiment, "--out", tmp_path / "records", *ONE_WORKER)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert len(list(tmp_path.glob("records/rings/bumps/softer/*/*/measurements.csv"))) == 4


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"broken.py": "import no_such_module"}, "plug-in 'my_broken'.*no_such_module.*uninstall"),
        ({"again.py": "from batchscale.workloads.optimizers.builtin.sgd import *\n"}, None),
        (
            {
                "taken.py": "from batchscale.workloads import OptimizerDeclaration\n"
                "ONE = OptimizerDeclaration('sgd', {}, (), None)"
            },
            "optimizer 'sgd' is declared twice",
        ),
    ],
)
def test_a_plug_in_that_fails_or_takes_a_name_is_named(tmp_path, files, words):
    (tmp_path / "my_broken").mkdir()
    for name, text in {"__init__.py": "", **files}.items():
        (tmp_path / "my_broken" / name).write_text(text)
    install(tmp_path, "my_broken")
    answer = python(tmp_path, "-m", "batchscale", "workloads", "--json")
    if words is None:
        assert answer.returncode == 0, answer.stderr
        return
    assert answer.returncode == 2
    assert re.search(words, " ".join(answer.stderr.split())), answer.stderr
    assert "Traceback" not in answer.stderr


def test_one_name_cannot_have_two_bounds():
    with pytest.raises(ValueError, match="one declaration: 'momentum' stays within"):
        declare_bounds("momentum", Bounds(0, 2))
