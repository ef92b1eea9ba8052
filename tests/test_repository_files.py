"""The files around the code agree with it: citation, workflow, container, licences (`make lint-files` lints them)."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()


def test_the_citation_has_the_version_and_licence_of_the_package():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {PROJECT['version']}\n" in citation
    assert f"\nlicense: {PROJECT['license']}\n" in citation


def test_the_workflow_calls_targets_of_the_makefile_and_nothing_else():
    workflow = (ROOT / ".github" / "workflows" / "check.yml").read_text()
    commands = re.findall(r"^ *- run: (.+)$", workflow, re.MULTILINE)
    matrix = re.search(r"target: \[(.+)\]", workflow)[1].split(", ")
    targets = [command.removeprefix("make ") for command in commands]
    assert all(command.startswith("make ") for command in commands)
    for target in {*targets, *matrix} - {"${{ matrix.target }}"}:
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
    assert PROJECT["requires-python"] == f">={re.search(r'python: ..([0-9.]+)', workflow)[1]}"


def test_the_container_has_a_parameter_for_its_base_and_a_user_without_rights():
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert {line.split()[1] for line in lines if line.startswith("FROM")} == {"${BASE_IMAGE}"}
    users = [line.split()[1] for line in lines if line.startswith("USER")]
    assert users and users[-1].split(":")[0] not in ("0", "root")
    copied = [name for line in lines if line.startswith("COPY") and "--from" not in line for name in line.split()[1:-1]]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for name in copied:
        assert (ROOT / name).exists() and f"!{name}" in ignored, name


def test_every_carried_font_script_and_data_file_has_its_terms():
    """Each file in the package that is neither code nor text of ours is named with its terms."""
    terms = (ROOT / "THIRD_PARTY.md").read_text()
    package = ROOT / "src" / "batchscale"
    carried = [path for end in ("ttf", "woff2", "npz", "csv", "csv.gz", "min.js") for path in package.rglob(f"*.{end}")]
    assert len(carried) >= 6
    for path in carried:
        name = path.relative_to(package).as_posix()
        assert f"`{name}`" in terms or f"`{path.parent.relative_to(package).as_posix()}/`" in terms, name
    assert {"LICENSE", "THIRD_PARTY.md"} <= set(PROJECT["license-files"])
