"""Fixed choices of examples: orders that are the same on every machine and with every version of numpy."""

import numpy as np
from numpy.typing import NDArray

from batchscale.spec.plan import derive_seed

LabelledImages = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""Images (first axis: the example) and their class labels."""


def fixed_order(num_examples: int, *purpose: str) -> NDArray[np.int64]:
    """A permutation of ``0 … num_examples - 1`` that depends on the number and the purpose alone.

    ``RandomState`` because numpy promises never to change its stream; the newer ``Generator`` gives no such promise.

    >>> sorted(fixed_order(5, "example").tolist())
    [0, 1, 2, 3, 4]
    """
    return np.random.RandomState(derive_seed(*purpose)).permutation(num_examples).astype(np.int64)


def fixed_choice(num_examples: int, count: int, *purpose: str) -> NDArray[np.int64]:
    """``count`` of ``num_examples`` indices in growing order; a smaller choice is contained in a larger one."""
    return np.sort(fixed_order(num_examples, *purpose)[:count])
