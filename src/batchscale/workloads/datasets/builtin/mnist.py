"""MNIST and its subsets: 55,000 training, 5,000 validation and 10,000 test images of 28×28.

The first 5,000 images of the official training files are the validation set. A subset is a fixed random choice of the
55,000 training images, smaller ones contained in larger ones; validation and test sets stay whole (paper, 4.5).
"""

from functools import partial
from pathlib import Path

from batchscale.spec import Options
from batchscale.workloads.datasets.facts import dataset_facts
from batchscale.workloads.datasets.files.locations import require_data
from batchscale.workloads.datasets.images.fixed_order import LabelledImages, fixed_choice
from batchscale.workloads.datasets.images.mnist_files import has_mnist_files, read_mnist_splits
from batchscale.workloads.datasets.images.on_device import make_image_dataset, scale_pixels
from batchscale.workloads.datasets.images.options import PixelOptions
from batchscale.workloads.datasets.options import parse_options
from batchscale.workloads.workload import Dataset


def load(name: str, options: Options, data_dir: Path | None) -> Dataset:
    """MNIST, or the subset that the name says."""
    wanted = dataset_facts(name, options).num_train_examples
    pixel_range = parse_options(PixelOptions, name, options).pixel_range
    splits = read_mnist_splits(require_data("mnist", partial(has_mnist_files, name="mnist"), data_dir))
    if wanted is not None and wanted < len(splits["train"][1]):
        splits = {**splits, "train": _choose(splits["train"], wanted)}
    return make_image_dataset(name, splits, scale_pixels(255, pixel_range))


def _choose(split: LabelledImages, count: int) -> LabelledImages:
    images, labels = split
    chosen = fixed_choice(len(labels), count, "mnist", "subset")
    return images[chosen], labels[chosen]
