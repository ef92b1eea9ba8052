"""IDX files, plain or gzipped: the format of MNIST and Fashion-MNIST. Imports no jax."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, one_line

_UNSIGNED_BYTE = 8
_LIMIT = 2**31


def read_idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The unsigned bytes of an IDX file whose items have this shape; the first axis counts the items.

    Raises:
        DataError: The file cannot be read, is cut short, has bytes too many, or holds something else.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            header = file.read(4 + 4 * (1 + len(shape)))
            count = _item_count(path, header, shape)
            size = count * math.prod(shape)
            content = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read as an IDX file: {one_line(error)}. Get the data set anew.") from error
    if len(content) != size:
        found = "more" if len(content) > size else f"{len(content):,}"
        raise DataError(f"{path} must hold {size:,} bytes after its header, found {found}. Get the data set anew.")
    return np.frombuffer(content, np.uint8).reshape(count, *shape)


def _item_count(path: Path, header: bytes, shape: tuple[int, ...]) -> int:
    expected = bytes([0, 0, _UNSIGNED_BYTE, 1 + len(shape)])
    if header[:4] != expected or len(header) != 8 + 4 * len(shape):
        raise DataError(
            f"{path} is not an IDX file of unsigned bytes with {1 + len(shape)} axes: it starts with "
            f"{header[:4].hex(' ')}, expected {expected.hex(' ')}."
        )
    count, *found = (int.from_bytes(header[i : i + 4], "big") for i in range(4, len(header), 4))
    if tuple(found) != shape or count * math.prod(shape) > _LIMIT:
        raise DataError(f"{path} must hold items of shape {shape}. Found {count:,} of shape {tuple(found)}.")
    return count
