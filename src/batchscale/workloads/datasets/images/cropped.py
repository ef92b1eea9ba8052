"""Images that are read, cropped and flipped on the host, and lose the mean colour on the device."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from batchscale.machine import count_cores
from batchscale.workloads.datasets.images.encoded import EncodedImages, Selection
from batchscale.workloads.datasets.images.pixels import Crop, read_pixels
from batchscale.workloads.workload import Batch, Dataset, HostBatch, IndexedSplit

MEAN_RGB = (123.68, 116.779, 103.939)
"""The mean colour of ImageNet as Simonyan and Zisserman (2014) published it."""
_MAX_THREADS = 16


@final
@dataclass(frozen=True)
class ImageSplit(IndexedSplit):
    """Images of a source; ``labels_of`` returns the labels of the examples at some positions."""

    images: EncodedImages
    indices: NDArray[np.int64]
    labels_of: Callable[[NDArray[np.int64]], NDArray[Any]]
    crop: Crop

    @property
    def num_examples(self) -> int:
        """The number of images."""
        return len(self.indices)

    def read(self, indices: NDArray[np.int64], seeds: NDArray[np.int64] | None) -> HostBatch:
        """Return pixels as bytes (N, size, size, 3) and labels; with seeds randomly cropped and flipped."""
        pixels = np.empty((len(indices), self.crop.size, self.crop.size, 3), np.uint8)

        def fill(position: int) -> None:
            content, where = self.images.read(int(self.indices[indices[position]]))
            seed = None if seeds is None else int(seeds[position])
            pixels[position] = read_pixels(content, where, self.crop, seed)

        # Pillow decodes outside the interpreter lock, so that threads are enough; a pool per call leaves nothing open.
        with ThreadPoolExecutor(min(_MAX_THREADS, count_cores())) as pool:
            for _ in pool.map(fill, range(len(indices))):
                pass  # raises what a thread raised
        return {"inputs": pixels, "labels": self.labels_of(np.asarray(indices))}


def make_class_split(selection: Selection, crop: Crop) -> ImageSplit:
    """Return a split whose examples have one class each."""
    return ImageSplit(selection.images, selection.indices, partial(np.take, selection.labels), crop)


def subtract_mean_colour(batch: Batch) -> Batch:
    """Return pixels as float32 less the mean of each colour; labels as int32, or as float32 where there are several."""
    inputs = batch["inputs"].astype(jnp.float32) - jnp.array(MEAN_RGB, jnp.float32)
    labels = batch["labels"]
    return {**batch, "inputs": inputs, "labels": labels.astype(jnp.int32 if labels.ndim == 1 else jnp.float32)}


def make_cropped_dataset(name: str, splits: Mapping[str, ImageSplit], crop: Crop, num_outputs: int) -> Dataset:
    """Return a data set of images that are cropped to one size in colour."""
    return Dataset(name, splits, subtract_mean_colour, (crop.size, crop.size, 3), jnp.float32, num_outputs)
