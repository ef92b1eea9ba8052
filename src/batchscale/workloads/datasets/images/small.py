"""Small sets of images: options, fixed orders of examples, and data sets that live on the device as bytes.

Imports jax only when a data set is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from batchscale.spec.plan import derive_seed
from batchscale.workloads.datasets.declaration import DatasetInfo, NoOptions
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    from batchscale.workloads.workload import Batch, Dataset

LabelledImages = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""Images (first axis: the example) and their class labels."""


class PixelOptions(NoOptions):
    """``pixel_range``: the values of black and white; grey lies between them in proportion."""

    pixel_range: tuple[float, float] = (0.0, 1.0)

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        low, high = self.pixel_range
        if not (math.isfinite(high - low) and low < high):
            raise ValueError(f"pixel_range must be two finite numbers, the smaller first, found {low:g} and {high:g}")
        return self


def ten_classes(count: int, shape: tuple[int, int, int], name: str, options: NoOptions) -> DatasetInfo:
    """Return the description of ``count`` small training images of this shape in ten classes."""
    del options
    return DatasetInfo(name, Task.CLASSIFICATION, count, 10, shape)


def fixed_order(num_examples: int, *purpose: str) -> NDArray[np.int64]:
    """Return a permutation of ``0 … num_examples - 1`` that depends on the number and the purpose alone.

    ``RandomState`` because numpy promises never to change its stream; the newer ``Generator`` gives no such promise.

    >>> sorted(fixed_order(5, "example").tolist())
    [0, 1, 2, 3, 4]
    """
    return np.random.RandomState(derive_seed(*purpose)).permutation(num_examples).astype(np.int64)


def fixed_choice(num_examples: int, count: int, *purpose: str) -> NDArray[np.int64]:
    """Return ``count`` of ``num_examples`` indices in growing order; a larger choice contains a smaller one."""
    return np.sort(fixed_order(num_examples, *purpose)[:count])


def scale_pixels(maximum: int, pixel_range: tuple[float, float]) -> Callable[[Batch], Batch]:
    """Return a ``prepare`` that scales bytes up to ``maximum`` to this range, and makes labels int32."""
    import jax.numpy as jnp

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
    """Return a data set of images and class labels from bytes on the host."""
    import jax.numpy as jnp

    from batchscale.workloads.workload import ArraySplit, Dataset

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
