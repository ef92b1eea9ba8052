"""Fashion-MNIST: the same files, sizes and split as MNIST, with pictures of clothes."""

from functools import partial
from pathlib import Path

from batchscale.spec import Options
from batchscale.workloads.datasets.files.locations import require_data
from batchscale.workloads.datasets.images.mnist_files import has_mnist_files, read_mnist_splits
from batchscale.workloads.datasets.images.on_device import make_image_dataset, scale_pixels
from batchscale.workloads.datasets.images.options import PixelOptions
from batchscale.workloads.datasets.options import parse_options
from batchscale.workloads.workload import Dataset


def load(name: str, options: Options, data_dir: Path | None) -> Dataset:
    """Fashion-MNIST."""
    pixel_range = parse_options(PixelOptions, name, options).pixel_range
    is_there = partial(has_mnist_files, name="fashion_mnist")
    splits = read_mnist_splits(require_data("fashion_mnist", is_there, data_dir))
    return make_image_dataset(name, splits, scale_pixels(255, pixel_range))
