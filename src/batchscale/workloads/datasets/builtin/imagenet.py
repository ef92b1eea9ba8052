"""ImageNet (ILSVRC 2012) and its two subsets, from a folder of pictures, Parquet files or Hugging Face.

Training: smallest side resized to a random length in [256, 512], random 224×224 cut, random reflection. Evaluation:
256 and the central cut. Then the mean colour is subtracted (paper, A.1).
"""

from pathlib import Path

import jax.numpy as jnp

from batchscale.spec import Options
from batchscale.workloads.datasets.builtin.imagenet_files import has_imagenet_files, read_imagenet_splits
from batchscale.workloads.datasets.files.locations import named_or_required
from batchscale.workloads.datasets.images.options import ImageNetOptions
from batchscale.workloads.datasets.images.split import make_class_split, subtract_mean_colour
from batchscale.workloads.datasets.options import parse_options
from batchscale.workloads.workload import Dataset


def load(name: str, options: Options, data_dir: Path | None) -> Dataset:
    """ImageNet or the subset that the name says."""
    chosen = parse_options(ImageNetOptions, name, options)
    folder = None
    if chosen.hf is None:
        folder = named_or_required("imagenet", chosen.path, has_imagenet_files, data_dir)
    splits, num_classes = read_imagenet_splits(name, folder, chosen)
    return Dataset(
        name=name,
        splits={split: make_class_split(selection, chosen.crop) for split, selection in splits.items()},
        prepare=subtract_mean_colour,
        input_shape=(chosen.image_size, chosen.image_size, 3),
        input_dtype=jnp.float32,
        num_outputs=num_classes,
    )
