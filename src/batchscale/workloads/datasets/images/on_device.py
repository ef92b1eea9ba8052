"""Small image sets that live on the device as bytes and become floats there."""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
import numpy as np

from batchscale.workloads.datasets.images.fixed_order import LabelledImages
from batchscale.workloads.workload import ArraySplit, Batch, Dataset


def scale_pixels(maximum: int, pixel_range: tuple[float, float]) -> Callable[[Batch], Batch]:
    """A ``prepare`` that makes bytes up to ``maximum`` numbers of this range, and labels int32."""
    low, high = pixel_range

    def prepare(batch: Batch) -> Batch:
        inputs = batch["inputs"].astype(jnp.float32) / maximum
        if pixel_range != (0, 1):
            inputs = inputs * (high - low) + low
        return {**batch, "inputs": inputs, "labels": batch["labels"].astype(jnp.int32)}

    return prepare


def make_image_dataset(
    name: str, splits: Mapping[str, LabelledImages], prepare: Callable[[Batch], Batch], num_outputs: int = 10
) -> Dataset:
    """A data set of images and class labels from bytes on the host."""
    return Dataset(
        name=name,
        splits={
            split: ArraySplit({"inputs": images, "labels": labels.astype(np.int32)})
            for split, (images, labels) in splits.items()
        },
        prepare=prepare,
        input_shape=splits["train"][0].shape[1:],
        input_dtype=jnp.float32,
        num_outputs=num_outputs,
    )
