"""Pickles read without running anything of theirs: numpy arrays come out as inert records. Imports no jax.

A pickle names functions to call. Here the few names that a pickled array of bytes needs lead to the stand-ins below,
which only keep what they are given; every other name is refused. Not even numpy sees the content before its type,
shape and length were checked.
"""

import math
import pickle
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, one_line


class _Type:
    """Stands for numpy's dtype and for its array class."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment of the type, which mean nothing for single bytes."""


class InertArray:
    """What a pickle says of an array."""

    shape: tuple[int, ...] = ()
    _kind: object = None
    _fortran: object = None
    _content: object = None

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise pickle.UnpicklingError("an array's state has five parts")
        _, shape, self._kind, self._fortran, self._content = state
        if not isinstance(shape, tuple) or not all(type(length) is int and length >= 0 for length in shape):
            raise pickle.UnpicklingError("an array's shape is a tuple of whole numbers")
        self.shape = shape

    def to_bytes_array(self, where: str) -> NDArray[np.uint8]:
        """The array, if it is one of single bytes in C order whose length fits its shape."""
        kind = self._kind.arguments[:1] if isinstance(self._kind, _Type) else ()
        fits = isinstance(self._content, bytes) and len(self._content) == math.prod(self.shape)
        if kind not in (("u1",), (b"u1",)) or self._fortran or not fits:
            raise DataError(f"{where} must hold an array of single bytes that fills its shape {self.shape}.")
        assert isinstance(self._content, bytes)
        return np.frombuffer(self._content, np.uint8).reshape(self.shape)


def _reconstruct(*_: object) -> InertArray:
    return InertArray()


def _encode(text: object, encoding: object) -> bytes:
    """Python 3 writes bytes at old protocols as Latin-1 text to be encoded again."""
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("only Latin-1 text is encoded")
    return text.encode("latin-1")


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _Type,
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _encode,
}


@dataclass(frozen=True)
class _Refused(Exception):  # noqa: N818 - never leaves this file
    name: str


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> Any:
        found = _STAND_INS.get((module, name))
        if found is None:
            raise _Refused(f"{module}.{name}")
        return found

    def persistent_load(self, pid: object, /) -> Any:
        raise _Refused(f"persistent object {pid!r}")


def read_inert_pickle(where: str, file: BinaryIO) -> dict[Any, Any]:
    """The dictionary in a pickle, with arrays as ``InertArray``.

    Raises:
        DataError: The file is no pickle of a dictionary, or names something that a table of arrays does not need.
    """
    try:
        value = _InertUnpickler(file, encoding="bytes").load()
    except _Refused as refused:
        raise DataError(f"{where} asks to run {one_line(refused.name)}, which no data file needs: refused.") from None
    except Exception as error:
        raise DataError(f"{where} cannot be read as a pickle: {one_line(error)}. Get the data set anew.") from error
    if not isinstance(value, dict):
        raise DataError(f"{where} must hold a dictionary. Found {type(value).__name__}.")
    return value
