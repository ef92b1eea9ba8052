"""The built sdist and wheel: reproducible, complete, and nothing else in them (`make test-package`)."""

import os
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

TOOLS = os.environ.get("BATCHSCALE_PACKAGE_TOOLS", "")
ROOT = Path(__file__).parents[1]
PACKAGE = "src/batchscale/"
AROUND = {"README.md", "LICENSE", "THIRD_PARTY.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", ".gitignore"}

pytestmark = [pytest.mark.wheel, pytest.mark.skipif(not TOOLS, reason="`make test-package` installs the tools")]


def git(*words: object) -> str:
    return subprocess.run(["git", *map(str, words)], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def build(clone: Path, dist: Path, umask: int) -> dict[str, Path]:
    """Clone the last commit, make its files differ in what should not matter, and build both files of a release."""
    git("clone", "--quiet", ROOT, clone)
    moment = time.time() - 1e6 * umask
    for path in clone.rglob("*"):
        if ".git" not in path.parts:
            os.utime(path, (moment, moment))
    environment = os.environ | {"SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct").strip()}
    words = [Path(TOOLS) / "uv", "build", "--quiet", "--out-dir", dist]
    subprocess.run(words, cwd=clone, check=True, env=environment, umask=umask)
    return {path.name: path for path in dist.iterdir() if path.suffix in (".gz", ".whl")}


@pytest.fixture(scope="module")
def builds(tmp_path_factory) -> list[dict[str, Path]]:
    folder = tmp_path_factory.mktemp("package")
    return [
        build(folder / "a", folder / "dist_a", 0o022),
        build(folder / "other name", folder / "dist_b", 0o077),
    ]


@pytest.fixture(scope="module")
def stored() -> set[str]:
    return set(git("ls-tree", "-r", "--name-only", "HEAD").splitlines())


def test_two_clones_give_the_same_bytes(builds):
    first, second = builds
    assert set(first) == set(second) and len(first) == 2
    for name, path in first.items():
        assert path.read_bytes() == second[name].read_bytes(), name


def test_the_wheel_has_the_package_and_the_licences_and_nothing_else(builds, stored):
    (wheel,) = (path for name, path in builds[0].items() if name.endswith(".whl"))
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        (info,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
        code = {name.removeprefix("src/") for name in stored if name.startswith(PACKAGE)}
        about = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}
        licences = {f"{info}/licenses/LICENSE", f"{info}/licenses/THIRD_PARTY.md"}
        assert names == code | about | licences
        for name in licences:
            assert file.read(name) == (ROOT / Path(name).name).read_bytes()
        assert b"Bitstream Vera" in file.read("batchscale/figures/fonts/README.md")  # the terms of the carried font


def test_the_sdist_has_what_the_wheel_is_built_from_and_nothing_else(builds, stored):
    (sdist,) = (path for name, path in builds[0].items() if name.endswith(".tar.gz"))
    with tarfile.open(sdist) as file:
        members = [member for member in file.getmembers() if not member.isdir()]
    assert all(member.isfile() and member.uid == member.gid == 0 and not member.uname for member in members)
    names = {member.name.partition("/")[2] for member in members}
    assert names == {name for name in stored if name.startswith("src/")} | AROUND | {"PKG-INFO"}


def test_twine_accepts_both_files(builds):
    words = [Path(TOOLS) / "twine", "check", "--strict", *builds[0].values()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stdout + done.stderr
