"""Turn the bytes of an image into pixels: decode, resize, crop, flip (paper, A.1). Imports no jax.

Everything random is a function of one seed per image, so that a resumed trial gets the same pixels again.
"""

import io
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, one_line

if TYPE_CHECKING:
    from PIL import Image

_PAPER_SIZE, _PAPER_RESIZE = 224, (256, 512)


@dataclass(frozen=True)
class Crop:
    """The square cut out, and the range of lengths that the smallest side is resized to before.

    In training the length is drawn from the whole range; in evaluation it is the shortest, and the cut is central.
    """

    size: int = _PAPER_SIZE
    resize_min: int = _PAPER_RESIZE[0]
    resize_max: int = _PAPER_RESIZE[1]

    @classmethod
    def scaled(cls, size: int, resize_min: int | None = None, resize_max: int | None = None) -> "Crop":
        """Return the paper's proportions at another size, where the lengths are not given.

        >>> Crop.scaled(56)
        Crop(size=56, resize_min=64, resize_max=128)
        """
        shortest = resize_min if resize_min is not None else round(size * _PAPER_RESIZE[0] / _PAPER_SIZE)
        longest = resize_max if resize_max is not None else round(size * _PAPER_RESIZE[1] / _PAPER_SIZE)
        return cls(size, shortest, max(shortest, longest) if resize_max is None else longest)


def read_pixels(content: bytes, where: str, crop: Crop, seed: int | None) -> NDArray[np.uint8]:
    """Return pixels (size, size, 3) of an encoded image: cropped at random with a seed, at the centre without.

    Raises:
        DataError: The bytes are not a whole image.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            warnings.filterwarnings("ignore", category=UserWarning)  # odd metadata does not change pixels
            with Image.open(io.BytesIO(content)) as image:
                return _cut(image.convert("RGB"), crop, seed)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"{where} cannot be read as an image: {one_line(error)}.") from error


def _cut(image: "Image.Image", crop: Crop, seed: int | None) -> NDArray[np.uint8]:
    from PIL.Image import Resampling

    draw = (0, 0, 0, 0) if seed is None else _draw(seed)
    side = crop.resize_min + draw[0] % (crop.resize_max - crop.resize_min + 1)
    width, height = _resized(image.size, side)
    if seed is None:
        x, y = (width - crop.size) // 2, (height - crop.size) // 2
    else:
        x, y = draw[1] % (width - crop.size + 1), draw[2] % (height - crop.size + 1)
    # Only the cut is resampled: what resizing the whole image first gives, in 1.3 ms and not 3.3.
    across, down = image.size[0] / width, image.size[1] / height
    box = (x * across, y * down, (x + crop.size) * across, (y + crop.size) * down)
    pixels = np.asarray(image.resize((crop.size, crop.size), Resampling.BILINEAR, box=box))
    return pixels[:, ::-1] if draw[3] & 1 else pixels


def _draw(seed: int) -> tuple[int, ...]:
    """Return four random words; numpy promises that a seed sequence never changes."""
    return tuple(int(word) for word in np.random.SeedSequence(seed).generate_state(4))


def _resized(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Return width and height with the smallest side of this length and the same proportions, to the nearest pixel."""
    width, height = size
    if width <= height:
        return side, max(side, round(height * side / width))
    return max(side, round(width * side / height)), side
