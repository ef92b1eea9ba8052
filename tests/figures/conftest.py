"""Records made by hand, and the synthetic archive at scale 1/50 as a tree, made once for all tests of figures."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from made_records import simulated

from batchscale.records.frames import Records


@pytest.fixture(scope="session")
def synthetic_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from synthetic_archive import Scale, write_tree

    folder = tmp_path_factory.mktemp("synthetic") / "tree"
    write_tree(folder, Scale(trials=1 / 50, measurements=1 / 10))
    return folder


@pytest.fixture(scope="session")
def synthetic(synthetic_tree: Path) -> Records:
    from batchscale.records.read import read_records

    return read_records(synthetic_tree)


@pytest.fixture(scope="session")
def curve_records() -> Records:
    return simulated()
