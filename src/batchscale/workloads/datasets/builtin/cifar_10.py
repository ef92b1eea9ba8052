"""CIFAR-10: 45,000 training, 5,000 validation and 10,000 test images of 32×32 in colour.

The last 5,000 images of the official training set are the validation set. Each image is standardised by its own mean
and standard deviation over all pixels and channels, as ``tf.image.per_image_standardization`` does (paper, A.1).
"""

import math
from pathlib import Path

import jax.numpy as jnp

from batchscale.spec import Options
from batchscale.workloads.datasets.builtin.cifar_files import has_cifar_files, read_cifar_splits
from batchscale.workloads.datasets.files.locations import require_data
from batchscale.workloads.datasets.images.on_device import make_image_dataset
from batchscale.workloads.datasets.options import NoOptions, parse_options
from batchscale.workloads.workload import Batch, Dataset


def load(name: str, options: Options, data_dir: Path | None) -> Dataset:
    """CIFAR-10 from its binary or python version, extracted or in the archive."""
    parse_options(NoOptions, name, options)
    splits = read_cifar_splits(require_data("cifar_10", has_cifar_files, data_dir))
    return make_image_dataset(name, splits, standardise_images)


def standardise_images(batch: Batch) -> Batch:
    """Every image less its mean, over its standard deviation or, if that is larger, 1 / sqrt(number of values)."""
    pixels = batch["inputs"].astype(jnp.float32)
    least = 1 / math.sqrt(math.prod(pixels.shape[1:]))
    mean = jnp.mean(pixels, axis=(1, 2, 3), keepdims=True)
    deviation = jnp.std(pixels, axis=(1, 2, 3), keepdims=True)
    inputs = (pixels - mean) / jnp.maximum(deviation, least)
    return {**batch, "inputs": inputs, "labels": batch["labels"].astype(jnp.int32)}
