"""The options of data sets of images. Imports no jax."""

from typing import Self

from pydantic import Field, model_validator

from batchscale.workloads.datasets.declaration import NoOptions
from batchscale.workloads.datasets.images.pixels import Crop


class ImageOptions(NoOptions):
    """The place of the images, if not the usual one, and the size that they are cropped to.

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
            sizes = f"{crop.size}, {crop.resize_min}, {crop.resize_max}"
            raise ValueError(f"image_size ≤ resize_min ≤ resize_max must hold, found {sizes}")
        if self.path is not None and self.hf is not None:
            raise ValueError("path and hf name two sources: give one of the two")
        return self

    @property
    def crop(self) -> Crop:
        """The resizing and cropping of images."""
        return Crop.scaled(self.image_size, self.resize_min, self.resize_max)

    @property
    def names_files(self) -> bool:
        """True if the user names the files, so that sizes follow from them and not from the publisher."""
        return self.path is not None or self.hf is not None


class ImageNetOptions(ImageOptions):
    """``test_images``: the number of training images that become the test set; the paper's share unless given."""

    test_images: int | None = Field(default=None, ge=1)


class OpenImagesOptions(ImageOptions):
    """``min_positives``: the number of training images that a trainable class needs.

    ``allow_missing``: skip labelled images whose files are missing, instead of rejecting the set.
    """

    min_positives: int = Field(default=100, ge=1)
    allow_missing: bool = False
    label_column: str = "labels"
