"""The options of data sets of images. Imports no jax."""

from typing import Self

from pydantic import Field, model_validator

from batchscale.workloads.datasets.declaration import NoOptions
from batchscale.workloads.datasets.images.pixels import Crop


class ImageOptions(NoOptions):
    """Where the images are, if not in the usual places, and the size that they are cut to.

    ``path`` names a folder of images or of Parquet files, ``hf`` a Hugging Face data set (hub name or folder).
    ``resize_min`` and ``resize_max`` follow from ``image_size`` in the paper's proportions unless given.
    """

    image_size: int = Field(default=224, ge=1, le=4096)
    resize_min: int | None = Field(default=None, ge=1, le=16384)
    resize_max: int | None = Field(default=None, ge=1, le=16384)
    path: str | None = None
    hf: str | None = None
    hf_config: str | None = None
    image_column: str = "image"
    label_column: str = "label"

    @model_validator(mode="after")
    def _check(self) -> Self:
        crop = self.crop
        if not crop.size <= crop.resize_min <= crop.resize_max:
            found = f"{crop.size}, {crop.resize_min}, {crop.resize_max}"
            raise ValueError(f"image_size ≤ resize_min ≤ resize_max must hold, found {found}")
        if self.path is not None and self.hf is not None:
            raise ValueError("path and hf name two sources: give one of the two")
        return self

    @property
    def crop(self) -> Crop:
        """How images are resized and cut."""
        return Crop.scaled(self.image_size, self.resize_min, self.resize_max)

    @property
    def names_files(self) -> bool:
        """Whether the user names the files, so that sizes follow from them and not from the publisher."""
        return self.path is not None or self.hf is not None


class ImageNetOptions(ImageOptions):
    """``test_images``: how many training images become the test set; the paper's share unless given."""

    test_images: int | None = Field(default=None, ge=1)


class OpenImagesOptions(ImageOptions):
    """``min_positives``: how many training images must show a class to make it trainable.

    ``allow_missing``: pass over labelled images whose files are not there, instead of refusing the set.
    """

    min_positives: int = Field(default=100, ge=1)
    allow_missing: bool = False
    label_column: str = "labels"
