"""A Ray cluster of this machine for tests: a head without room for workers, and nodes that come and go."""

import os
import secrets
import sys
import time

import psutil

TOKEN = secrets.token_hex(32)


def set_variables() -> None:
    """What must be set before Ray is first loaded."""
    os.environ |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_raylet_start_wait_time_s": "120",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),  # workers import the fakes by name
    }


class SmallCluster:
    """The nodes are processes of this machine; each has as many cores as it says."""

    def __init__(self) -> None:
        set_variables()
        from ray.cluster_utils import Cluster

        quickly = {
            "health_check_initial_delay_ms": 0,
            "health_check_period_ms": 500,
            "health_check_failure_threshold": 4,
        }
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "include_dashboard": False, "_system_config": quickly, **SMALL},
        )
        self.nodes = []

    @property
    def address(self) -> str:
        return self._cluster.address

    def add(self, num_cpus: int = 1, **resources: float):
        node = self._cluster.add_node(wait=False, num_cpus=num_cpus, resources=resources or None, **SMALL)
        self.nodes.append(node)
        return node

    def kill(self, node) -> None:
        """A machine that is switched off: nothing on it can say anything any more."""
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        family = [raylet, *raylet.children(recursive=True)]
        for process in family:
            process.suspend()
        for process in reversed(family):
            process.kill()
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        self._cluster.shutdown()


SMALL = {"object_store_memory": 80 * 2**20}


def start_runner(address: str, setup, workers: int | None = 1, least: int | None = None, **settings):
    """A runner whose workers have begun."""
    from batchscale.workers.ray.runner import RayRunner, RaySettings

    runner = RayRunner(setup, RaySettings(address, workers, **settings))
    try:
        wait_for(lambda: runner.wait(0.1) == [] and len(runner.workers) >= (least or workers), what="workers")
    except BaseException:
        runner.close()
        raise
    return runner


def wait_for(found, seconds: float = 90.0, what: str = "it") -> None:
    """Until ``found()`` is true."""
    until = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < until, f"{what} did not happen in {seconds} s"
        time.sleep(0.02)
