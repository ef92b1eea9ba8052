"""The setup of a worker on another machine: what it needs, and what it verifies before its first job.

The driver makes a `RemoteSetup` once. A worker verifies it against its machine: versions that give the same numbers,
the content of the user's own Python file, the data, the trainer's program. One message names what is wrong and where.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from batchscale import __version__
from batchscale.errors import BatchscaleError, RunError, StorageError, one_line
from batchscale.machine import name_host
from batchscale.records.durable import replace_atomically
from batchscale.records.remote_store import RemoteStore
from batchscale.spec.experiment import Experiment
from batchscale.trainers.command import require_program
from batchscale.workers.fork_server import TRAINING_ENGINE
from batchscale.workers.runner import Setup
from batchscale.workloads.datasets.files.locations import find_dataset

NUMERIC = ("jax", "jaxlib")
"""Packages whose version may change the last bits of a result."""

MARKER = ".seen-by-nodes"
"""A file with a secret of the run, by which a node sees that it reaches the place of the states."""


@dataclass(frozen=True)
class OwnFile:
    """The user's own Python file: its name, its content, and the hash of that."""

    name: str
    text: str
    sha256: str


@dataclass(frozen=True)
class RemoteSetup:
    """The driver's versions, and the user's own file if there is one.

    ``secret`` is the content of the marker at the remote path of states.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    own_file: OwnFile | None = None
    secret: str = ""


def make_remote_setup(experiment: Experiment) -> RemoteSetup:
    """Return what workers on other machines need beside the setup.

    Raises:
        RunError: the user's own file cannot be read, or is no UTF-8 text.
    """
    file = experiment.workload.file
    return RemoteSetup(_versions(experiment.trainer is None), None if file is None else _read_own_file(file))


def make_absolute(setup: Setup) -> Setup:
    """Return the setup with paths that are the same in any working folder."""
    workload = setup.experiment.workload
    if workload.file is not None:
        workload = replace(workload, file=workload.file.resolve())
    data_dir = None if setup.data_dir is None else setup.data_dir.resolve()
    return replace(setup, experiment=replace(setup.experiment, workload=workload), data_dir=data_dir)


def verify_environment(setup: Setup, remote: RemoteSetup, private: Path, node: str | None = None) -> Setup:
    """Return the setup for this machine, after everything that it needs was found.

    Args:
        setup: the driver's setup.
        remote: what the driver sends along.
        private: a folder of this worker alone, where the user's own file may be written.
        node: the name of this machine in messages. Default: its host name.

    Raises:
        RunError: something is missing or different, with the node's name and what to do.
    """
    try:
        _check_versions(remote.versions)
        local = setup if remote.own_file is None else _place_own_file(setup, remote.own_file, private)
        _check_data(local)
        if local.experiment.trainer is not None:
            require_program(local.experiment.trainer)
    except BatchscaleError as error:
        raise RunError(f"Node {one_line(node or name_host())} cannot train this experiment. {error}") from None
    return local


def write_marker(url: str, secret: str) -> None:
    """Write the marker at the remote path of states, which also shows that the path can be written.

    Raises:
        StorageError: nothing can be written there, with the reason.
    """
    RemoteStore(url).put(MARKER, secret.encode())


def remove_marker(url: str) -> None:
    """Remove the marker at the remote path, if possible."""
    RemoteStore(url).remove(MARKER)


def find_states_problem(url: str, secret: str) -> str:
    """Return the reason why this machine cannot store states at the remote path; empty if it can."""
    try:
        content = RemoteStore(url).get(MARKER)
    except StorageError as error:
        return one_line(error, 400)
    return "" if content == secret.encode() else f"{one_line(url, 200)}: the marker of this run is not there."


def _versions(with_numeric: bool) -> dict[str, str]:
    versions = {"batchscale": __version__}
    return versions | {name: _installed(name) for name in NUMERIC} if with_numeric else versions


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _check_versions(required: Mapping[str, str]) -> None:
    installed = _versions(with_numeric=True)
    wrong = [
        f"{name} {installed.get(name, 'none')} instead of {one_line(number)}"
        for name, number in required.items()
        if installed.get(name) != number
    ]
    if wrong:
        raise RunError(
            f"Workers have the versions of the driver, so that they give the same numbers. Found {', '.join(wrong)}: "
            "install the same environment there."
        )


def _read_own_file(path: Path) -> OwnFile:
    try:
        content = path.read_bytes()
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(
            f"workload.file is sent to every worker as UTF-8 text. Found {one_line(path, 300)}: {one_line(error, 200)}."
        ) from None
    return OwnFile(path.name, text, hashlib.sha256(content).hexdigest())


def _place_own_file(setup: Setup, own_file: OwnFile, private: Path) -> Setup:
    """Return the setup with the user's own file: at its path if it is the same here, else a copy in a private folder.

    At its own path a file finds what it imports from its folder.
    """
    workload = setup.experiment.workload
    if workload.file is not None and _has_content(workload.file, own_file.sha256):
        return setup
    content = own_file.text.encode()
    if hashlib.sha256(content).hexdigest() != own_file.sha256 or Path(own_file.name).name != own_file.name:
        raise RunError("The user's own file must arrive as the driver read it. It was damaged on its way; run again.")
    folder = private / own_file.sha256[:16]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / own_file.name
    if not _has_content(path, own_file.sha256):
        replace_atomically(path, content)
    return replace(setup, experiment=replace(setup.experiment, workload=replace(workload, file=path)))


def _has_content(path: Path, sha256: str) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    except OSError:
        return False


def _check_data(setup: Setup) -> None:
    """Raise RunError if files of the data set are needed and not on this machine.

    If the driver's ``--data-dir`` is no folder here, the node's own places are searched all the same.
    """
    experiment = setup.experiment
    if setup.engine != TRAINING_ENGINE or experiment.workload.file is not None:
        return  # a script and a user's own file take care of their data
    name = experiment.workload.name.dataset
    presence = find_dataset(name, setup.data_dir, experiment.workload.dataset_options)
    if not presence.needs_files or presence.path is not None:
        return
    place = "" if setup.data_dir is None else f" in {one_line(setup.data_dir, 300)} or"
    raise RunError(
        f"The data set '{name}' must be on every machine that trains. It was not found{place} where this node "
        f"keeps data: {presence.how}. A folder that all nodes see, given as --data-dir, is simplest."
    )
