"""What every worker of a Ray run is given: the setup, what it needs on another machine, and where its states go.

A node shows by a mark, a file with a secret in it, that it sees the driver's folder of checkpoints, or the remote path
that takes its place; workers on a node that does not keep their states in memory alone.
"""

import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from batchscale import __version__
from batchscale.errors import RunError, one_line
from batchscale.workers.messages import Begin
from batchscale.workers.remote_setup import RemoteSetup, make_absolute, make_remote_setup
from batchscale.workers.runner import Setup
from batchscale.workers.state_marker import MARKER, remove_marker, write_marker


@dataclass(frozen=True)
class Papers:
    """A setup on its way to the nodes; ``mark`` is None where no states are kept in a folder."""

    setup: Setup
    luggage: RemoteSetup
    mark: Path | None
    secret: str

    def lay_out(self) -> None:
        """Write the mark.

        Raises:
            StorageError: states cannot be kept at the remote path.
        """
        if self.setup.states_url is not None:
            write_marker(self.setup.states_url, self.secret)
        if self.mark is not None:
            self.mark.parent.mkdir(parents=True, exist_ok=True)
            self.mark.write_text(self.secret)

    def put_away(self) -> None:
        """Remove the mark."""
        if self.setup.states_url is not None:
            remove_marker(self.setup.states_url)
        if self.mark is not None:
            self.mark.unlink(missing_ok=True)

    def begin(self, worker_id: str, *, sees_mark: bool, neighbours: int) -> Begin:
        """A worker's first message; ``neighbours`` is how many workers its node holds, itself included."""
        setup = self.setup if sees_mark else replace(self.setup, checkpoint_dir=None)
        if setup.experiment.trainer is not None:
            setup = replace(setup, options={**setup.options, "workers": str(neighbours)})
        return Begin(setup, worker_id, self.luggage)


def make_papers(setup: Setup) -> Papers:
    """The papers of a run; a trainer's scripts have the environment of their node, not of the driver.

    Raises:
        RunError: the user's own file cannot be sent, or states of a script are to be kept at a remote path.
    """
    plan, experiment = setup.experiment.run.ray, setup.experiment
    if plan.checkpoints is not None and experiment.trainer is not None:
        raise RunError(
            "run.ray.checkpoints keeps states of batchscale's own trials. Found a [trainer]: its script keeps its own; "
            "take the key out, and let the script save where all nodes see it."
        )
    options = {name: value for name, value in setup.options.items() if name != "environment"}
    folder = None if plan.checkpoints is not None else setup.checkpoint_dir
    mark = None if folder is None else folder / MARKER
    secret = secrets.token_hex(16)
    luggage = replace(make_remote_setup(experiment), data_from=plan.data_from, secret=secret)
    setup = replace(setup, options=options, checkpoint_dir=folder, states_url=plan.checkpoints)
    return Papers(make_absolute(setup), luggage, mark, secret)


def find_version_problem(look: dict[str, Any]) -> str | None:
    """Why a node cannot even be asked whether it has everything; None if it can."""
    if look["version"] == __version__:
        return None
    found = f"version {one_line(look['version'])}" if look["version"] else "none"
    return (
        f"Node {one_line(look['host'])} cannot train this experiment. It must have batchscale {__version__}. Found "
        f"{found}: install the same environment there."
    )
