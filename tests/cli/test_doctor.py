"""`batchscale doctor`: an installation that works, and broken ones, which are diagnosed and never crash it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from batchscale.cli import doctor
from batchscale.cli.app import make_app


def run(*arguments):
    return CliRunner().invoke(make_app("doctor"), ["doctor", *map(str, arguments)])


@pytest.fixture
def quick_jax(monkeypatch):
    """JAX's answer without JAX: one processor, as the script prints it."""
    code = 'print(\'{"version": "1", "devices": [{"kind": "cpu", "platform": "cpu"}], "works": true}\')'
    monkeypatch.setattr(doctor, "_JAX", code)


def test_a_sound_installation_fits_on_one_screen(quick_jax, tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHSCALE_CACHE", str(tmp_path))
    monkeypatch.setattr(doctor, "LITTLE_DISK_BYTES", 0)
    monkeypatch.setattr("batchscale.machine.count_accelerators", lambda: 0)
    result = run()
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) <= 24
    assert "✓ Nothing is wrong." in result.stdout
    assert str(tmp_path) in result.stdout and "1 × cpu (cpu)" in result.stdout


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import sys; sys.exit('ImportError: libcuda.so.1 is missing')", "libcuda.so.1 is missing"),
        ("import os; os.kill(os.getpid(), 11)", "it ended with -11"),
        ("import time; time.sleep(60)", "it did not start within 0.5 s"),
        ("print('no json')", "JAX cannot be checked"),
    ],
)
def test_a_broken_jax_is_a_diagnosis(monkeypatch, code, problem):
    monkeypatch.setattr(doctor, "_JAX", code)
    result = run("--json", "--jax-timeout", 0.5 if "sleep" in code else 60)
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert any(problem in text for text in found["problems"]), found["problems"]
    assert found["jax"] is None and found["machine"]["cores"] >= 1  # all else is checked


def test_without_jax_everything_else_is_right(monkeypatch, tmp_path):
    monkeypatch.setenv("BATCHSCALE_CACHE", str(tmp_path))
    monkeypatch.setattr(doctor, "LITTLE_DISK_BYTES", 0)
    requires = ["polars>=1.30", "jax>=0.7.1; extra == 'jax'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda _name: requires)
    installed = doctor._installed
    monkeypatch.setattr(
        doctor, "_installed", lambda name: None if name in ("jax", "jaxlib", "flax") else installed(name)
    )
    result = run()
    assert result.exit_code == 0, result.output
    assert "the built-in engine is not installed (pip install 'batchscale[jax]')" in result.stdout


def test_accelerators_that_jax_does_not_see_are_a_problem(quick_jax, monkeypatch):
    monkeypatch.setattr("batchscale.machine.count_accelerators", lambda: 2)
    result = run("--json")
    assert result.exit_code == 1
    assert any(
        "must see the accelerators of this machine (2)" in text for text in json.loads(result.stdout)["problems"]
    )


def test_missing_and_old_packages_are_named_with_the_remedy(quick_jax, monkeypatch):
    requires = ["polars>=1.30", "numpy>=99", "absent-package>=1", "starlette>=0.40; extra == 'web'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda _name: requires)
    problems = json.loads(run("--json").stdout)["problems"]
    assert any(text.startswith("numpy must be 99 or later. Found ") for text in problems)
    assert any("absent-package must be 1 or later. It is missing" in text for text in problems)
    assert not any("polars" in text for text in problems)


def test_a_cache_that_cannot_be_written_and_a_broken_plugin(quick_jax, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BATCHSCALE_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr("batchscale.plugins.BUILT_IN", ("no_such_plugin",))
    problems = json.loads(run("--json").stdout)["problems"]
    assert any("the cache folder must be writable" in text for text in problems)
    assert any("The plug-in 'no_such_plugin'" in text for text in problems)


def test_it_starts_without_the_libraries_that_it_diagnoses(tmp_path):
    """A library that cannot even be imported is a line of the output."""
    (tmp_path / "polars").mkdir()
    (tmp_path / "polars" / "__init__.py").write_text("raise ImportError('broken on purpose')")
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("raise ImportError('jax is broken on purpose')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "batchscale", "doctor", "--json"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert answer.returncode == 1, answer.stderr
    problems = " ".join(json.loads(answer.stdout)["problems"])
    assert "jax is broken on purpose" in problems


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("batchscale do", "doctor"),
        ("batchscale figure cur", "curve"),
        ("batchscale data get pt", "ptb"),
        ("batchscale analyze {records} --workload mn", "mnist/fc_1024/sgd"),
        ("batchscale analyze {records} --base", "--baseline"),
    ],
)
def test_a_shell_completes_commands_options_and_names(line, expected):
    line = line.format(records=Path(__file__).parents[2] / "examples" / "mnist_fc_records")
    environment = {**os.environ, "_BATCHSCALE_COMPLETE": "complete_bash"}
    environment |= {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    command = [
        sys.executable,
        "-c",
        "import sys; sys.argv = ['batchscale']; from batchscale.cli.app import main; main()",
    ]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert expected in answer.stdout.split(), (answer.stdout, answer.stderr[-500:])
