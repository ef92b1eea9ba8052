"""What a worker on another machine needs, and checks when it arrives there: one message names what is wrong and where.

The driver packs `RemoteSetup` once. A worker unpacks it before its first job: versions that give the same numbers, the
user's own Python file by what it contains, the data, the trainer's program.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from batchscale import __version__
from batchscale.errors import BatchscaleError, RunError, one_line
from batchscale.machine import name_host
from batchscale.records.durable import replace_atomically
from batchscale.spec.experiment import Experiment
from batchscale.trainers.command import require_program
from batchscale.workers.node_data import take_data
from batchscale.workers.runner import TRAINING_ENGINE, Setup
from batchscale.workloads.datasets.presence import find_dataset

NUMERIC = ("jax", "jaxlib")
"""Packages whose version may change the last bits of a result."""


@dataclass(frozen=True)
class OwnFile:
    """The user's own Python file: its name, what it contains, and the hash of that."""

    name: str
    text: str
    sha256: str


@dataclass(frozen=True)
class RemoteSetup:
    """What the driver sends with a worker: the versions it has itself, and the user's own file if there is one.

    A machine without the data takes it from ``data_from``. ``secret`` stands in the mark at the remote path for states.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    own_file: OwnFile | None = None
    data_from: str | None = None
    secret: str = ""


def make_remote_setup(experiment: Experiment) -> RemoteSetup:
    """What workers on other machines need beside the setup.

    Raises:
        RunError: the user's own file cannot be read, or is no UTF-8 text.
    """
    ours = experiment.trainer is None
    return RemoteSetup(
        _versions(ours), None if experiment.workload.file is None else _pack_file(experiment.workload.file)
    )


def make_absolute(setup: Setup) -> Setup:
    """The setup with paths that mean the same in any working folder."""
    workload = setup.experiment.workload
    if workload.file is not None:
        workload = replace(workload, file=workload.file.resolve())
    data_dir = None if setup.data_dir is None else setup.data_dir.resolve()
    return replace(setup, experiment=replace(setup.experiment, workload=workload), data_dir=data_dir)


def arrive(setup: Setup, luggage: RemoteSetup, private: Path, node: str | None = None) -> Setup:
    """The setup as it holds on this machine, after everything was found to be here.

    Args:
        setup: what the driver says.
        luggage: what the driver sends along.
        private: a folder of this worker alone, where the user's own file may be written.
        node: what messages call this machine. Default: its name.

    Raises:
        RunError: something is missing or different, with the node's name and what to do.
    """
    try:
        _check_versions(luggage.versions)
        here = setup if luggage.own_file is None else _unpack_file(setup, luggage.own_file, private)
        _check_data(here, luggage.data_from)
        if here.experiment.trainer is not None:
            require_program(here.experiment.trainer)
    except BatchscaleError as error:
        raise RunError(f"Node {one_line(node or name_host())} cannot train this experiment. {error}") from None
    return here


def _versions(with_numeric: bool) -> dict[str, str]:
    found = {"batchscale": __version__}
    return found | {name: _installed(name) for name in NUMERIC} if with_numeric else found


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _check_versions(wanted: Mapping[str, str]) -> None:
    here = _versions(with_numeric=True)
    wrong = [f"{name} {here.get(name, 'none')} instead of {one_line(wanted[name])}" for name in wanted
             if here.get(name) != wanted[name]]  # fmt: skip
    if wrong:
        raise RunError(
            f"Workers have the versions of the driver, so that they give the same numbers. Found {', '.join(wrong)}: "
            "install the same environment there."
        )


def _pack_file(path: Path) -> OwnFile:
    try:
        content = path.read_bytes()
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(
            f"workload.file is sent to every worker as UTF-8 text. Found {one_line(path, 300)}: {one_line(error, 200)}."
        ) from None
    return OwnFile(path.name, text, hashlib.sha256(content).hexdigest())


def _unpack_file(setup: Setup, own: OwnFile, private: Path) -> Setup:
    """The setup with the user's own file: where it was if it is the same here, else a copy in a private place.

    In its own place a file finds what it imports from its folder.
    """
    workload = setup.experiment.workload
    if workload.file is not None and _contains(workload.file, own.sha256):
        return setup
    content = own.text.encode()
    if hashlib.sha256(content).hexdigest() != own.sha256 or Path(own.name).name != own.name:
        raise RunError("The user's own file is what the driver read. It was damaged on its way here; run again.")
    folder = private / own.sha256[:16]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / own.name
    if not _contains(path, own.sha256):
        replace_atomically(path, content)
    return replace(setup, experiment=replace(setup.experiment, workload=replace(workload, file=path)))


def _contains(path: Path, sha256: str) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    except OSError:
        return False


def _check_data(setup: Setup, source: str | None) -> None:
    """Raises RunError if files of the data set are needed, are not here, and cannot be taken from the source.

    Where the driver's ``--data-dir`` is no folder here, the node's own places are searched all the same.
    """
    experiment = setup.experiment
    if setup.engine != TRAINING_ENGINE or experiment.workload.file is not None:
        return  # a script and a user's own file look after their data
    name = experiment.workload.name.dataset
    found = find_dataset(name, setup.data_dir, experiment.workload.dataset_options)
    if not found.needs_files or found.path is not None:
        return
    failure = ""
    if source is not None:
        try:
            take_data(name, source, setup.data_dir)
        except BatchscaleError as error:
            failure = f" It could not be taken from {one_line(source, 300)}: {error}"
        else:
            return
    place = "" if setup.data_dir is None else f" in {one_line(setup.data_dir, 300)} or"
    raise RunError(
        f"The data set '{name}' must be on every machine that trains. It was not found{place} where this node "
        f"keeps data: {found.how}. A folder that all nodes see, given as --data-dir, is simplest.{failure}"
    )
