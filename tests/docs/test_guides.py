"""Every page is held to the code: its commands and options exist, its links lead somewhere, its examples run.

A fenced block of ``sh`` shows commands. One whose fence says ``sh run`` is run, and one of ``python`` is run too, page
by page, in one fresh folder that has the project's ``examples``, the ``records`` of a small experiment and the same
records as a ``table``. The tutorial's first command, ``sh run slow``, measures for a minute: the default tests
continue with the small records in its place.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner
from warm_commands import warm_commands

from batchscale.cli.app import make_app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXPERIMENT = """
goal = "val/loss < 0.1"
batch_sizes = [1, 8, 64, 512]
trials = 8
finishers = 4
[workload]
dataset = "noisy_quadratic"
model = "quadratic"
optimizer = "momentum"
[budget]
steps = 2000
[evaluation]
spacing = "log"
[search]
repeats = 0
"""
TESTED_ELSEWHERE = {
    "archive",  # its examples query a table of the published shape: tests/records/archive
    "gallery",  # tests/docs/test_site.py
}
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


def blocks(page):
    return [(match[1].strip(), match[2]) for match in FENCE.finditer(page.read_text(encoding="utf-8"))]


def commands(text):
    """The batchscale commands of a shell block, as lists of words; a backslash continues a line."""
    lines = text.replace("\\\n", " ").splitlines()
    found = (shlex.split(line, comments=True) for line in lines if line.strip().startswith("batchscale "))
    return [words[1:] for words in found if len(words) > 1]


def check_command(words):
    command = typer.main.get_command(make_app())
    while words and hasattr(command, "commands"):
        name = words.pop(0)
        if name.startswith("-"):
            return
        assert name in command.commands, f"no command {name!r}"
        command = command.commands[name]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--help", "-h"}
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in known, f"batchscale {command.name} has no option {word}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_options_on_the_page_exist(page):
    for language, text in blocks(page):
        if language.startswith("sh"):
            for words in commands(text):
                check_command(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_the_page_lead_somewhere(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in LINK.findall(text):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def runs(language):
    return language in ("python", "sh run")


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """A folder with what the pages' examples work on."""
    folder = tmp_path_factory.mktemp("material")
    (folder / "small.toml").write_text(EXPERIMENT, encoding="utf-8")
    shutil.copytree(ROOT / "examples", folder / "examples")
    for words in ("run {0}/small.toml --out {0}/records --runner inline -q", "import {0}/records --out {0}/table"):
        answer = CliRunner().invoke(make_app(), words.format(folder).split())
        assert answer.exit_code == 0, answer.output
    shutil.copytree(folder / "records", folder / "digits" / "records")
    return folder


def user_environment(*folders):
    """The variables of somebody who has installed batchscale, with these folders before all others on the path."""
    scripts = [*map(str, folders), str(Path(sys.executable).parent)]
    environment = {**os.environ, "PATH": os.pathsep.join([*scripts, os.environ["PATH"]])}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)  # a user has none: batchscale keeps programs where it says
    return environment


def call(command, folder, environment=None, timeout=240):
    answer = subprocess.run(
        command, cwd=folder, env=environment or user_environment(), capture_output=True, text=True, timeout=timeout
    )
    assert answer.returncode == 0, f"{command}\n{answer.stdout[-2000:]}{answer.stderr[-4000:]}"


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """The variables of a user whose ``batchscale``, and whose ``python`` for a block, need not start."""
    folder = tmp_path_factory.mktemp("warm")
    with warm_commands(folder, user_environment()):
        yield user_environment(folder / "bin")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if p.stem not in TESTED_ELSEWHERE and any(runs(language) for language, _ in blocks(p))],
    ids=lambda page: page.stem,
)
def test_examples_of_the_page_run(page, material, tmp_path, warm):
    folder = shutil.copytree(material, tmp_path / "page")
    for language, text in blocks(page):
        if language == "python":
            call(["python", "-W", "error", "-c", text], folder, warm)
        elif runs(language):
            call(["bash", "-euc", text], folder, warm)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tutorial_runs_from_nothing(tmp_path, warm):
    for language, text in blocks(ROOT / "docs" / "tutorial.md"):
        if language in ("sh run", "sh run slow"):
            call(["bash", "-euc", text], tmp_path, warm, timeout=600)
    assert (tmp_path / "report.html").exists() and (tmp_path / "runs.csv").exists()


PLACEHOLDER = re.compile(r"\b(?:NUMBERS?|TODO|TBD|FIXME|XXX+|PLACEHOLDER|LOREM)\b|\?\?\?|<(?:number|fill|value)[^>]*>")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.stem)
def test_nothing_on_the_page_waits_to_be_filled_in(page):
    found = PLACEHOLDER.search(page.read_text(encoding="utf-8"))
    assert found is None, f"{page.name} has {found[0]!r} where something is to be filled in"
