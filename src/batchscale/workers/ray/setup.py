"""The setup of all workers of a Ray run, and the markers that show which nodes reach the states of the run.

A marker is a file with a secret, in the driver's folder of checkpoints or at the remote path that replaces it. Workers
on a node that does not see it hold states in memory alone.
"""

import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from batchscale.errors import RunError
from batchscale.workers.messages import Begin
from batchscale.workers.remote_setup import (
    MARKER,
    RemoteSetup,
    make_absolute,
    make_remote_setup,
    remove_marker,
    write_marker,
)
from batchscale.workers.runner import Setup


@dataclass(frozen=True)
class RaySetup:
    """The setup for the nodes; ``marker`` is None if no states are stored in a folder."""

    setup: Setup
    remote: RemoteSetup
    marker: Path | None
    secret: str

    def write_markers(self) -> None:
        """Write the marker.

        Raises:
            StorageError: states cannot be stored at the remote path.
        """
        if self.setup.states_url is not None:
            write_marker(self.setup.states_url, self.secret)
        if self.marker is not None:
            self.marker.parent.mkdir(parents=True, exist_ok=True)
            self.marker.write_text(self.secret)

    def remove_markers(self) -> None:
        """Remove the marker."""
        if self.setup.states_url is not None:
            remove_marker(self.setup.states_url)
        if self.marker is not None:
            self.marker.unlink(missing_ok=True)

    def begin(self, worker_id: str, *, sees_marker: bool, node_workers: int) -> Begin:
        """Return a worker's first message; ``node_workers`` is the number of workers that its node holds."""
        setup = self.setup if sees_marker else replace(self.setup, checkpoint_dir=None)
        if setup.experiment.trainer is not None:
            setup = replace(setup, options={**setup.options, "workers": str(node_workers)})
        return Begin(setup, worker_id, self.remote)


def make_ray_setup(setup: Setup) -> RaySetup:
    """Make the setup for the nodes; a trainer's scripts have the environment of their node, not of the driver.

    Raises:
        RunError: the user's own file cannot be sent, or states of a script are to be stored at a remote path.
    """
    plan, experiment = setup.experiment.run.ray, setup.experiment
    if plan.checkpoints is not None and experiment.trainer is not None:
        raise RunError(
            "run.ray.checkpoints stores states of batchscale's own trials. Found a [trainer]: its script stores its "
            "own; remove the key, and let the script save where all nodes see it."
        )
    options = {name: value for name, value in setup.options.items() if name != "environment"}
    folder = None if plan.checkpoints is not None else setup.checkpoint_dir
    secret = secrets.token_hex(16)
    remote = replace(make_remote_setup(experiment), secret=secret)
    setup = replace(setup, options=options, checkpoint_dir=folder, states_url=plan.checkpoints)
    return RaySetup(make_absolute(setup), remote, None if folder is None else folder / MARKER, secret)
