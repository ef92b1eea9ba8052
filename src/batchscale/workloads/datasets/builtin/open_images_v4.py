"""Open Images v4 as multi-label classification, from csv labels with a folder of pictures, Parquet or Hugging Face.

Only classes with at least 100 human-verified positives in the training set count, and only pictures that show one of
them; every class that is not a verified positive is taken as negative. Pictures are treated as ImageNet's (paper, A.1).
"""

from functools import partial
from pathlib import Path

import jax.numpy as jnp

from batchscale.spec import Options
from batchscale.workloads.datasets.files.locations import named_or_required
from batchscale.workloads.datasets.images.open_images_files import has_open_images_files
from batchscale.workloads.datasets.images.open_images_splits import read_open_images
from batchscale.workloads.datasets.images.options import OpenImagesOptions
from batchscale.workloads.datasets.images.split import ImageSplit, subtract_mean_colour
from batchscale.workloads.datasets.options import parse_options
from batchscale.workloads.workload import Dataset


def load(name: str, options: Options, data_dir: Path | None) -> Dataset:
    """Open Images, or a set in its file form."""
    chosen = parse_options(OpenImagesOptions, name, options)
    folder = None
    if chosen.hf is None:
        folder = named_or_required("open_images_v4", chosen.path, has_open_images_files, data_dir)
    splits, classes = read_open_images(folder, chosen)
    return Dataset(
        name=name,
        splits={
            split: ImageSplit(part.images, part.indices, partial(part.multi_hot, num_classes=len(classes)), chosen.crop)
            for split, part in splits.items()
        },
        prepare=subtract_mean_colour,
        input_shape=(chosen.image_size, chosen.image_size, 3),
        input_dtype=jnp.float32,
        num_outputs=len(classes),
    )
