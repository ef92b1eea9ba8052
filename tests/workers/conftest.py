import contextlib
import sys
from pathlib import Path

import pytest

# worker processes import the fakes by name, from the path that the driver has
sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))

from small_slurm import small_slurm


@pytest.fixture(scope="session")
def cluster_environment(tmp_path_factory):
    with small_slurm(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


@pytest.fixture
def small_cluster(cluster_environment, monkeypatch):
    """A real SLURM of two nodes on this machine, which this process talks to."""
    monkeypatch.setenv("SLURM_CONF", cluster_environment["SLURM_CONF"])
    return cluster_environment


@pytest.fixture(scope="session")
def ray_cluster():
    """A cluster that all tests share, because its start takes half a minute: one node with two places for workers."""
    from ray_cluster import SmallCluster

    cluster = SmallCluster()
    cluster.add(2)
    yield cluster
    cluster.close()


@pytest.fixture
def ray_runner(ray_cluster):
    """Makes runners on the shared cluster, whose workers have begun, and closes them."""
    from ray_cluster import start_runner

    with contextlib.ExitStack() as stack:
        yield lambda setup, workers=1, **settings: stack.enter_context(
            start_runner(ray_cluster.address, setup, workers, **settings)
        )
