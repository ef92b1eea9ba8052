"""The files around the code agree with it: citation, workflow, container, licences (`make lint-files` lints them)."""

import re
import subprocess
import tomllib
from pathlib import Path

import yaml

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
    versions = re.findall(r'"([0-9.]+)"', re.search(r"python: \[(.+)\]", workflow)[1])
    classifiers = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if ":: Python :: 3." in name]
    tested = re.search(r"^test-matrix: PYTHONS = (.+)$", MAKEFILE, re.MULTILINE)[1].split()
    assert versions == classifiers == tested
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


def test_the_compose_file_serves_this_machine_only_with_no_rights_to_gain():
    (service,) = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"].values()
    arguments = re.findall(r"^ARG (\w+)=(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    for name, value in service["build"]["args"].items():
        assert value == f"${{{name}:-{dict(arguments)[name]}}}"  # the defaults of the Dockerfile
    assert "ports" not in service and "privileged" not in service and "user" not in service
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "--host" not in service["command"] and service["command"][0] == "web"


def test_no_file_of_the_repository_names_a_package_index():
    hosts = "|".join(("pypi[.]org", "pythonhosted", "registry[.]npmjs", "deb[.]debian", "conda[.]anaconda"))
    done = subprocess.run(
        ["git", "grep", "-nIE", f"({hosts}|index-url|find-links)", "--", ":!tests/test_repository_files.py"], cwd=ROOT,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == ""
