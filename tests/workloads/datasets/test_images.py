import io

import numpy as np
import pytest
from PIL import Image

from batchscale.errors import DataError
from batchscale.workloads.datasets.images.pixels import Crop, read_pixels

# Pillow resizes in two passes that each round to a whole level; cutting first changes the last bits of its weights, so
# that either pass may round the other way. On these noise pictures a cut one pixel off differs by more than 100.
ROUNDING = 2


def encoded(array):
    out = io.BytesIO()
    Image.fromarray(array).save(out, "PNG")
    return out.getvalue()


def picture(height, width, seed=0):
    return np.random.RandomState(seed).randint(0, 256, (height, width, 3)).astype(np.uint8)


@pytest.mark.parametrize("size", [(300, 500), (500, 300), (256, 256), (100, 131), (64, 900)])
def test_evaluation_resizes_the_smallest_side_and_takes_the_centre(size):
    image = Image.fromarray(picture(*size))
    width, height = image.size
    scale = 256 / min(width, height)
    resized = np.asarray(image.resize((round(width * scale), round(height * scale)), Image.Resampling.BILINEAR))
    top, left = (resized.shape[0] - 224) // 2, (resized.shape[1] - 224) // 2
    expected = resized[top : top + 224, left : left + 224]
    found = read_pixels(encoded(picture(*size)), "it", Crop(), None)
    assert found.shape == (224, 224, 3)
    assert np.abs(found.astype(int) - expected).max() <= ROUNDING


def test_training_cuts_are_parts_of_a_resized_picture_or_its_mirror_image():
    """Every cut is found again by brute force in the picture resized to one of the allowed lengths."""
    content = encoded(picture(20, 26))
    crop = Crop(size=16, resize_min=18, resize_max=20)
    image = Image.open(io.BytesIO(content))
    sides, flips, places = set(), set(), set()
    for seed in range(60):
        found = read_pixels(content, "it", crop, seed).astype(int)
        match = None
        for side in (18, 19, 20):
            whole = np.asarray(image.resize((round(26 * side / 20), side), Image.Resampling.BILINEAR)).astype(int)
            for flip in (False, True):
                seen = found[:, ::-1] if flip else found
                for top in range(whole.shape[0] - 15):
                    for left in range(whole.shape[1] - 15):
                        if np.abs(whole[top : top + 16, left : left + 16] - seen).max() <= ROUNDING:
                            match = (side, flip, top, left)
        assert match is not None
        sides.add(match[0]), flips.add(match[1]), places.add(match[2:])
    assert sides == {18, 19, 20}
    assert flips == {False, True}
    assert len(places) > 10


def test_the_cut_depends_on_the_seed_alone():
    content = encoded(picture(40, 30))
    crop = Crop.scaled(24)
    first, again, other = (read_pixels(content, "it", crop, seed) for seed in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK", "P", "1", "LA"])
def test_pictures_of_other_modes_become_three_colours(mode):
    image = Image.fromarray(picture(60, 60)).convert(mode)
    out = io.BytesIO()
    image.save(out, "TIFF" if mode == "CMYK" else "PNG")
    found = read_pixels(out.getvalue(), "it", Crop.scaled(28), None)
    assert found.shape == (28, 28, 3)
    if mode in ("L", "LA", "1"):
        assert np.array_equal(found[..., 0], found[..., 1])


def test_a_damaged_picture_is_named():
    out = io.BytesIO()
    Image.fromarray(picture(100, 100)).save(out, "JPEG")
    content = out.getvalue()
    for cut in (0, 10, 500, len(content) // 2):
        with pytest.raises(DataError, match=r"photo\.jpg cannot be read as an image"):
            read_pixels(content[:cut], "photo.jpg", Crop(), None)


def test_a_picture_too_large_to_be_honest_is_refused(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(DataError, match="cannot be read as an image"):
        read_pixels(encoded(picture(100, 100)), "bomb.png", Crop(), None)
