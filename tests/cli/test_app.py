import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

import batchscale
from batchscale.cli.app import COMMANDS, PANELS, make_app

MNIST = Path(__file__).parents[2] / "examples/mnist_fc_records"

HEAVY = {"jax", "flax", "optax", "orbax", "altair", "polars", "scipy", "numpy", "pydantic", "ray"}


def run(*arguments, **options):
    command = [sys.executable, "-m", "batchscale", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def run_app(app, name):
    result = CliRunner().invoke(app, [name, "--help"], prog_name="batchscale")
    assert result.exit_code == 0, result.output
    return result.output


def loaded_by(code):
    script = f"{code}\nimport json, sys; print(json.dumps(sorted({{n.partition('.')[0] for n in sys.modules}})))"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(output.stdout.splitlines()[-1]))


def test_help_lists_the_commands_and_loads_nothing_heavy():
    code = (
        "import contextlib, io, sys\nfrom batchscale.cli.app import main\nsys.argv = ['batchscale', '--help']\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n    main()"
    )
    assert not loaded_by(code) & HEAVY
    answer = run("--help")
    assert answer.returncode == 0
    assert " init " in answer.stdout


@pytest.mark.parametrize("columns", [80, 120])
def test_help_groups_the_commands_and_cuts_no_description(columns):
    help_text = run("--help", env={**os.environ, "COLUMNS": str(columns)}).stdout
    assert "..." not in help_text.partition("Options:")[2] and "…" not in help_text
    sections = dict(re.findall(r"^([A-Z][\w-]+):\n((?:  .+\n)+)", help_text, re.MULTILINE))
    assert list(sections)[: 1 + len(PANELS)] == ["Options", *PANELS]
    for panel, names in PANELS.items():
        rows = re.findall(r"^  (\w+) +(\S.*)$", sections[panel], re.MULTILINE)
        assert sorted(name for name, _ in rows) == sorted(names), "every description fits one line"
        assert all(text.endswith(".") and len(text) > 20 for _, text in rows)


def test_help_takes_little_processor_time():
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.3  # processor time: the same whatever else runs on the machine


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_described_in_a_sentence(name, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    command = typer.main.get_command(make_app(name)).commands[name]
    for subcommand in getattr(command, "commands", {name: command}).values():
        assert subcommand.help[0].isupper() and subcommand.help.rstrip().endswith(".")
        assert "…" not in run_app(make_app(name), name)
        for parameter in subcommand.params:
            text = parameter.help or ""
            assert parameter.name == "help" or ((text[:1].isupper() or text[:1] == "f") and text.endswith(".")), text


def test_importing_the_package_loads_nothing_heavy():
    assert not loaded_by("import batchscale") & HEAVY


def test_analysing_loads_what_it_uses_and_no_reader_of_experiment_files():
    code = "from batchscale import Curve, analyze, fit, plan, read\nimport sys\n"
    code += "assert not {'batchscale.spec.tables', 'batchscale.spec.file'} & set(sys.modules)"
    assert loaded_by(code) & HEAVY == {"polars", "numpy", "pydantic"}  # the last checks the metadata of records
    assert not loaded_by("from batchscale import Goal, WorkloadName") & HEAVY


def test_a_command_loads_neither_the_others_nor_libraries_that_it_does_not_need(tmp_path):
    code = (
        "import contextlib, sys\nfrom batchscale.cli.app import main\n"
        f"sys.argv = ['batchscale', 'analyze', {str(MNIST)!r}]\n"
        "with contextlib.suppress(SystemExit):\n    main()\n"
        "assert not {'batchscale.cli.run', 'batchscale.cli.plan', 'numpy.ma'} & set(sys.modules)"
    )
    assert loaded_by(code) & HEAVY == {"polars", "numpy", "pydantic"}


def test_a_fixed_experiment_runs_without_predictions_and_leaves_training_to_its_worker(tmp_path):
    file = tmp_path / "experiment.toml"
    file.write_text(
        'goal = "val/loss < 0.5"\nbatch_sizes = [4]\ntrials = 1\nsearch = { repeats = 0 }\nbudget = { steps = 4 }\n'
        "evaluation = { count = 2 }\n"
        '[workload]\ndataset = "noisy_quadratic"\nmodel = "quadratic"\noptimizer = "sgd"\n'
    )
    code = (
        "import contextlib, sys\nfrom batchscale.cli.app import main\n"
        f"sys.argv = ['batchscale', 'run', {str(file)!r}, '--out', {str(tmp_path / 'out')!r}, '--workers', '1', '-q']\n"
        "with contextlib.suppress(SystemExit):\n    main()\n"
        "assert not {'batchscale.adaptive.rounds', 'batchscale.prediction.branched'} & set(sys.modules)"
    )
    assert loaded_by(code) & HEAVY == {"polars", "numpy", "pydantic"}
    assert (tmp_path / "out/noisy_quadratic/quadratic/sgd/4/1").is_dir()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_alone_is_the_command_among_all(name):
    alone, among = (run_app(make_app(only), name) for only in (name, None))
    assert alone == among
    assert f" {name} " in among


def test_public_names_are_there_and_an_unknown_one_is_an_attribute_error():
    for name in batchscale.__all__:
        assert getattr(batchscale, name) is not None
    assert set(batchscale.__all__) <= set(dir(batchscale))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        batchscale.nonsense  # noqa: B018 - the access is the test


def test_version_is_printed():
    assert run("--version").stdout == f"batchscale {batchscale.__version__}\n"


def test_an_unknown_command_exits_with_2():
    answer = run("measur")
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr


def test_a_mistake_of_the_user_is_one_paragraph_and_exit_code_2(tmp_path):
    (tmp_path / "experiment.toml").touch()
    answer = run("init", cwd=tmp_path)
    assert answer.returncode == 2
    assert answer.stderr.startswith("Error: ") and len(answer.stderr.splitlines()) == 1
    assert (tmp_path / "experiment.toml").read_bytes() == b""
