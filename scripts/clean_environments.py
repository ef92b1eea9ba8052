"""Make clean environments with the built package: for each interpreter, at the newest and lowest versions, by extras.

``environments.json`` in the folder lists them, and the interpreters that could not be had. uv can resolve to the lowest
versions that pyproject.toml allows; where an interpreter has no wheel of the lowest, the next that has one is taken.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("highest", "lowest-direct")
KINDS = {"base": (), "jax": ("jax",), "extras": ("jax", "text", "hf", "web", "audio", "remote", "gcs", "ray")}


class Uv:
    """The program, called with its output shown only on failure."""

    def __init__(self, program: Path) -> None:
        self.program = program

    def __call__(self, *words: object) -> str:
        """Run a command of uv and return its output."""
        return subprocess.run(
            [self.program, *map(str, words)], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()

    def interpreter(self, name: str) -> str | None:
        """Return the path of an interpreter, downloaded if this machine has none and can; None without one."""
        for command in (("find",), ("install", "--quiet"), ("find",)):
            done = subprocess.run(
                [self.program, "python", *command, name], cwd=ROOT, capture_output=True, text=True, check=False
            )
            if done.returncode == 0 and command == ("find",):
                return done.stdout.strip()
        return None


def install(uv: Uv, python: str, folder: Path, versions: str, kind: str, package: Path) -> None:
    """Make one environment with the package and the versions of its libraries that a user could have."""
    pins = folder.with_name(f"{folder.name}.txt")
    extras = [word for extra in KINDS[kind] for word in ("--extra", extra)]
    resolution = ("--only-binary", ":all:", "--python", python, "--resolution", versions)
    uv("pip", "compile", "--quiet", "--no-header", *resolution, *extras,
       "pyproject.toml", "--output-file", pins, "--upgrade")  # fmt: skip
    uv("venv", "--quiet", "--clear", "--python", python, folder)
    into = ("pip", "install", "--quiet", "--python", folder / "bin" / "python")
    uv(*into, "--requirements", pins)
    uv(*into, "--no-deps", package)


def main() -> int:
    """Build the package, make the environments, and list them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the environments and the built package go")
    parser.add_argument("--uv", type=Path, required=True, help="the program uv")
    parser.add_argument("--python", action="append", required=True, help="an interpreter: 3.12, or a path; repeatable")
    options = parser.parse_args()
    uv, folder = Uv(options.uv.resolve()), options.folder.resolve()
    shutil.rmtree(folder / "dist", ignore_errors=True)
    uv("build", "--quiet", "--out-dir", folder / "dist")  # the wheel is built from the sdist
    (wheel,), (sdist,) = (list((folder / "dist").glob(end)) for end in ("*.whl", "*.tar.gz"))
    environments, missing = [], []
    for name in options.python:
        python = uv.interpreter(name)
        if python is None:
            missing.append(name)
            sys.stderr.write(f"Python {name} is neither on this machine nor can uv download it: left out\n")
            continue
        code = "import platform; print(platform.python_version())"
        version = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
        short = ".".join(version.split(".")[:2])
        for versions in VERSIONS:
            for kind in KINDS:
                path = folder / f"{short}-{versions}-{kind}"
                sys.stderr.write(f"Installing into {path}\n")
                from_sdist = (kind, versions) == ("base", "lowest-direct")
                install(uv, python, path, versions, kind, sdist if from_sdist else wheel)
            environments.append({"name": f"{short}-{versions}", "python": version})
    (folder / "environments.json").write_text(json.dumps({"environments": environments, "missing": missing}, indent=1))
    return 0 if environments else 1


if __name__ == "__main__":
    raise SystemExit(main())
