"""A Ray cluster of this machine alone, for as long as a run lasts: the driver's side of its keeper.

All sockets are on loopback, callers need a token, and the cluster's files lie in a folder of this user's alone.
"""

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
from functools import cache

from batchscale.errors import RunError
from batchscale.log_tail import last_lines, open_log
from batchscale.study.failure import Failure

KEEPER = "batchscale.workers.ray.keeper"
END_S = 15.0
_MAX_ADDRESS = 4096


@cache
def own_variables() -> dict[str, str]:
    """The variables of local clusters and of whoever talks to them; Ray reads them once in a process."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # what keeps Ray to loopback, there by default and here by this
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }


class LocalCluster:
    """A cluster that is starting, running or closed."""

    def __init__(self, num_cpus: int, num_gpus: int) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the cluster
        self._process = subprocess.Popen(
            [sys.executable, "-m", KEEPER, str(num_cpus), str(num_gpus)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **own_variables(), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            start_new_session=True,  # Ctrl-C in the terminal reaches the driver alone
            bufsize=0,
        )
        self._said = b""

    def address(self, timeout_s: float) -> str | None:
        """Where it is; None if it is still starting after this time.

        Raises:
            RunError: it cannot be started, with the last lines that were printed.
        """
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            return None
        data = os.read(self._process.stdout.fileno(), _MAX_ADDRESS)
        if not data:
            self._process.wait()
            words = "A Ray cluster must start on this machine. It ended while it was starting."
            raise RunError(str(Failure(words, last_lines(open_log(self._log.fileno())))))
        self._said += data
        return str(json.loads(self._said)) if self._said.endswith(b"\n") else None

    def kill(self) -> None:
        """Let the keeper end everything; may be called from any thread."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def close(self) -> None:
        """End everything and wait for it."""
        self.kill()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for file in (self._process.stdout, self._log):
            if file is not None:
                file.close()
