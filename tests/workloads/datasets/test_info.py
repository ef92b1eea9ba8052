import subprocess
import sys

import pytest

from batchscale.errors import SpecError, UnknownNameError
from batchscale.workloads.datasets.declaration import dataset_info, dataset_names, load_dataset


def test_an_unknown_name_gets_the_nearest_ones():
    with pytest.raises(UnknownNameError, match="did you mean 'mnist'"):
        dataset_info("mnits", {})
    with pytest.raises(UnknownNameError, match="did you mean"):
        load_dataset("fashionmnist", {}, None)


def test_info_refuse_unknown_options():
    with pytest.raises(SpecError, match="no option 'colour'"):
        dataset_info("mnist", {"colour": True})


def test_info_of_every_set_come_without_jax():
    code = (
        "import sys; from batchscale.workloads.datasets.declaration import dataset_info, dataset_names\n"
        "[dataset_info(name, {}) for name in dataset_names() if name not in ('text', 'recordings')]\n"
        "sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_names_are_unique_and_hold_those_of_the_paper():
    assert {"mnist", "fashion_mnist", "mnist_subsets/mnist_6875", "solution_quality/mnist"} <= set(dataset_names())
