import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import batchscale
from batchscale.cli.app import COMMANDS, make_app

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


def test_importing_the_package_loads_nothing_heavy():
    assert not loaded_by("import batchscale") & HEAVY


def test_analysing_loads_what_it_uses_and_no_reader_of_experiment_files():
    loaded = loaded_by("from batchscale import analyze, read_records, steps_to_result")
    assert loaded & HEAVY == {"polars", "numpy"}
    assert not loaded_by("from batchscale import Goal, WorkloadName") & HEAVY


def test_a_command_loads_neither_the_others_nor_libraries_that_it_does_not_need(tmp_path):
    code = (
        "import contextlib, sys\nfrom batchscale.cli.app import main\n"
        f"sys.argv = ['batchscale', 'analyze', {str(MNIST)!r}]\n"
        "with contextlib.suppress(SystemExit):\n    main()\n"
        "assert not {'batchscale.cli.run', 'batchscale.cli.plan', 'numpy.ma'} & set(sys.modules)"
    )
    assert loaded_by(code) & HEAVY == {"polars", "numpy", "pydantic"}  # the last by Typer, for its own parameters


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
