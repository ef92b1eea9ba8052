"""``batchscale doctor``: the installation on one screen, and what is wrong with it.

A broken library must become a line of the output: nothing heavy is imported at the top, every check is made on its own,
and JAX is started in a process of its own, which may crash or hang.
"""

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from batchscale import __version__
from batchscale.cli.output import print_json
from batchscale.cli.selection import DATA_DIR_HELP, JSON_HELP
from batchscale.errors import one_line
from batchscale.formatting import size

VERSION = 1
JAX_TIMEOUT_S = 60.0
LITTLE_DISK_BYTES = 2 * 10**9
FEW_FILES = 1024
SHOWN = ("numpy", "polars", "jax", "jaxlib", "flax", "optax", "altair")
_JAX = """
import json, jax
devices = [{"kind": d.device_kind, "platform": d.platform} for d in jax.devices()]
total = float(jax.numpy.arange(4.0).sum())
print(json.dumps({"version": jax.__version__, "devices": devices, "works": total == 6.0}))
"""


@dataclass
class Findings:
    """Everything that was checked, and a sentence with the remedy for each problem."""

    packages: dict[str, str | None] = field(default_factory=dict)
    extras: dict[str, bool] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    jax: dict[str, Any] | None = None
    caches: dict[str, Any] = field(default_factory=dict)
    datasets: list[dict[str, Any]] = field(default_factory=list)
    plugins: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @contextmanager
    def checking(self, what: str) -> Iterator[None]:
        """Turn any error of a check into a problem: what is diagnosed may be broken in any way."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self.problems.append(f"{what} cannot be checked ({type(error).__name__}: {one_line(error, 200)}).")


def doctor(
    data_dir: Annotated[Path | None, typer.Option(help=DATA_DIR_HELP)] = None,
    jax_timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="The longest that JAX may take to start.")
    ] = JAX_TIMEOUT_S,
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Check versions, devices, caches, data sets and extras.

    Exit code 1 means that something is wrong; each problem comes with its remedy.
    """
    findings = Findings()
    has_jax = _installed("jax") is not None  # without it everything but the built-in engine works
    finish_jax = _start_jax(jax_timeout) if has_jax else None  # in the background, while everything else is checked
    checks: dict[str, Callable[[Findings], None]] = {
        "The packages": _check_packages,
        "The machine": _check_machine,
        "The caches": _check_caches,
        "The data sets": lambda findings: _check_datasets(findings, data_dir),
        "The plug-ins": _check_plugins,
    }
    for what, check in checks.items():
        with findings.checking(what):
            check(findings)
    if finish_jax is not None:
        with findings.checking("JAX"):
            _check_jax(findings, finish_jax())
    _print_json(findings) if json_ else _print_text(findings)
    raise typer.Exit(1 if findings.problems else 0)


# --- checks --------------------------------------------------------------------------------------------------------


def _check_packages(findings: Findings) -> None:
    """Compare the installed versions with those that this batchscale requires."""
    findings.packages = {name: _installed(name) for name in SHOWN}
    missing: dict[str, list[str]] = {}
    for text in importlib.metadata.requires("batchscale") or []:
        requirement, _, marker = (part.strip() for part in text.partition(";"))
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
        match = re.match(r"([\w.-]+)(?:\[[^\]]*\])?\s*(?:>=\s*([\w.]+))?", requirement)
        if match is None or match[1].lower() == "batchscale":
            continue
        version = _installed(match[1])
        wrong = version is None or (match[2] is not None and _numbers(version) < _numbers(match[2]))
        if extra is not None:
            missing.setdefault(extra[1], []).extend([match[1]] if wrong else [])
        elif wrong:
            found = f"Found {version}" if version else "It is missing"
            findings.problems.append(
                f"{match[1]} must be {match[2] or 'any version'} or later. {found}. Run: pip install --upgrade "
                "batchscale"
            )
    findings.extras = {name: not packages for name, packages in missing.items() if name not in ("dev", "docs", "bench")}


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _check_machine(findings: Findings) -> None:
    import resource

    from batchscale import machine

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    findings.machine = {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": machine.name_processor(),
        "cores": machine.count_cores(),
        "memory_bytes": machine.count_memory_bytes(),
        "accelerators": machine.count_accelerators(),
    }
    if 0 <= soft < FEW_FILES:
        findings.problems.append(
            f"A process must be able to open {FEW_FILES:,} files. Found {soft:,}. Run: ulimit -n 4096"
        )


def _check_caches(findings: Findings) -> None:
    from batchscale.workloads.cache import cache_folder, cache_problem

    folder, problem = cache_folder(), cache_problem()
    used = sum(_file_bytes(Path(where) / name) for where, _, names in os.walk(folder) for name in names)
    free = shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
    temporary = shutil.disk_usage(tempfile.gettempdir()).free
    findings.caches = {"folder": str(folder), "bytes": used, "free_bytes": free, "temporary_free_bytes": temporary}
    if problem is not None:
        findings.problems.append(problem)
    for place, left in (("The disk of the cache", free), ("The temporary folder", temporary)):
        if left < LITTLE_DISK_BYTES:
            findings.problems.append(
                f"{place} must have {size(LITTLE_DISK_BYTES)} free. Found {size(left)}. Free some space."
            )


def _file_bytes(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:  # removed meanwhile
        return 0


def _check_datasets(findings: Findings, data_dir: Path | None) -> None:
    from batchscale.workloads.datasets.files.locations import list_datasets

    findings.datasets = [
        {
            "name": dataset.name,
            "present": dataset.path is not None,
            "path": None if dataset.path is None else str(dataset.path),
        }
        for dataset in list_datasets(data_dir)
        if dataset.needs_files
    ]


def _check_plugins(findings: Findings) -> None:
    from batchscale.plugins import find_plugins

    for plugin in find_plugins():
        findings.plugins.append(plugin.name)
        try:
            plugin.load(plugin.module)
        except Exception as error:  # noqa: BLE001  (another package's code)
            findings.problems.append(one_line(error, 400))


def _start_jax(timeout_s: float) -> Callable[[], dict[str, Any] | str]:
    """Start JAX in a process; the returned function waits for it and returns its devices, or why there are none."""
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _JAX],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    except OSError as error:
        reason = f"it cannot be started ({one_line(error)})"
        return lambda: reason

    def finish() -> dict[str, Any] | str:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return f"it did not start within {timeout_s:g} s; is another process using the accelerator?"
        if process.returncode:
            lines = [line for line in errors.splitlines() if line.strip()]
            return f"it ended with {process.returncode}: {one_line(lines[-1] if lines else 'no message', 300)}"
        answer: dict[str, Any] = json.loads(output.splitlines()[-1])
        return answer

    return finish


def _check_jax(findings: Findings, answer: dict[str, Any] | str) -> None:
    if isinstance(answer, str):
        remedy = "pip install --upgrade 'batchscale[jax]'"
        findings.problems.append(f"JAX must start: {answer.rstrip('.')}. The built-in engine needs it. Run: {remedy}")
        return
    findings.jax = answer
    if not answer["works"]:
        findings.problems.append("JAX must add numbers up. It did not; install it again.")
    accelerators = findings.machine.get("accelerators", 0)
    if accelerators and all(device["platform"] == "cpu" for device in answer["devices"]):
        findings.problems.append(
            f"JAX must see the accelerators of this machine ({accelerators}). Found processors only. Run: pip install "
            "--upgrade 'jax[cuda13]', or another as JAX's guide says."
        )


# --- output --------------------------------------------------------------------------------------------------------


def _print_text(findings: Findings) -> None:
    def line(label: str, text: str) -> None:
        typer.echo(f"{label:<11}{text}")

    versions = [f"{name} {version}" for name, version in findings.packages.items() if version]
    line("batchscale", f"{__version__}, Python {platform.python_version()}")
    line("packages", ", ".join(versions))
    if machine := findings.machine:
        memory = size(machine["memory_bytes"])
        line("machine", f"{machine['system']}, {machine['processor']}, {machine['cores']} cores, {memory}")
    if findings.jax is not None:
        kinds = [f"{device['kind']} ({device['platform']})" for device in findings.jax["devices"]]
        line("devices", ", ".join(f"{kinds.count(kind)} × {kind}" for kind in dict.fromkeys(kinds)))
    elif not findings.packages.get("jax"):
        line("devices", "the built-in engine is not installed (pip install 'batchscale[jax]')")
    if caches := findings.caches:
        line("cache", f"{caches['folder']}, {size(caches['bytes'])}, {size(caches['free_bytes'])} free")
    if findings.datasets:
        present = [dataset["name"] for dataset in findings.datasets if dataset["present"]]
        line(
            "data sets", f"{', '.join(present) or 'none'} of {len(findings.datasets)} with files (batchscale data list)"
        )
    if findings.extras:
        line("extras", ", ".join(name for name, complete in findings.extras.items() if complete) or "none")
        absent = [name for name, complete in findings.extras.items() if not complete]
        if absent:
            line("", f"not installed: {', '.join(absent)} (pip install 'batchscale[{absent[0]}]')")
    if findings.plugins:
        line("plug-ins", ", ".join(findings.plugins))
    typer.echo("")
    for problem in findings.problems:
        typer.echo(f"✗ {problem}")
    if not findings.problems:
        typer.echo("✓ Nothing is wrong.")


def _print_json(findings: Findings) -> None:
    print_json(
        {
            "version": VERSION,
            "batchscale": __version__,
            "python": platform.python_version(),
            "packages": findings.packages,
            "machine": findings.machine,
            "jax": findings.jax,
            "caches": findings.caches,
            "datasets": findings.datasets,
            "extras": findings.extras,
            "plugins": findings.plugins,
            "problems": findings.problems,
        }
    )
