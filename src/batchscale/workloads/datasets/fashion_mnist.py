"""Fashion-MNIST: the same files, sizes and split as MNIST, with pictures of clothes."""

from functools import partial
from pathlib import Path

from batchscale.spec import Options
from batchscale.workloads.datasets.images_on_device import make_image_dataset, scale_pixels
from batchscale.workloads.datasets.locations import require_data
from batchscale.workloads.datasets.mnist_files import has_mnist_files, read_mnist_splits
from batchscale.workloads.datasets.options import NoOptions, parse_options
from batchscale.workloads.workload import Dataset


def load(name: str, options: Options, data_dir: Path | None) -> Dataset:
    """Fashion-MNIST."""
    parse_options(NoOptions, name, options)
    is_there = partial(has_mnist_files, name="fashion_mnist")
    splits = read_mnist_splits(require_data("fashion_mnist", is_there, data_dir))
    return make_image_dataset(name, splits, scale_pixels(255))
