"""Lanczos quadrature: the spectral measure of a vector under a symmetric matrix that is only given as products.

For a matrix H with eigenvalues h and eigenvectors u, the measure of a vector x puts the weight (uᵀx)² at each h. A few
products H·v give nodes and weights that have its moments exactly, up to twice their number. With x = a random vector of
signs its mean is the spectrum; with x = the way from the minimum, or a sample of gradient noise, it is where training
starts and how noise lies along the curvatures. No eigenvector is ever calculated.
"""

from collections.abc import Callable

import numpy as np

from batchscale.noisy_quadratic.problem import Floats

_EXHAUSTED = 1e-7  # of the largest coefficient: the vector spans no further direction, in single precision


def lanczos_quadrature(product: Callable[[Floats], Floats], vector: Floats, steps: int) -> tuple[Floats, Floats]:
    """Return the nodes, growing, and the weights of the spectral measure of a vector; weights add up to |vector|².

    Args:
        product: v → H·v; it is called once per step at most.
        vector: x; not zero.
        steps: The nodes at most. Fewer come back if x lies in fewer eigenspaces.

    >>> nodes, weights = lanczos_quadrature(lambda v: np.array([2.0, 5.0]) * v, np.array([3.0, 1.0]), 4)
    >>> nodes.round(6).tolist(), weights.round(6).tolist()
    ([2.0, 5.0], [9.0, 1.0])
    """
    amount = float(vector @ vector)
    basis = [vector / np.sqrt(amount)]
    diagonal: list[float] = []
    beside: list[float] = []
    for step in range(min(steps, len(vector))):
        moved = np.asarray(product(basis[-1]), dtype=np.float64)
        diagonal.append(float(basis[-1] @ moved))
        for _ in range(2):  # again: in floating point once leaves a rest
            for direction in basis:
                moved = moved - (direction @ moved) * direction
        length = float(np.sqrt(moved @ moved))
        if step + 1 == steps or length <= _EXHAUSTED * max(map(abs, [*diagonal, *beside])):
            break
        beside.append(length)
        basis.append(moved / length)
    size = len(diagonal)
    matrix = np.diag(diagonal) + np.diag(beside[: size - 1], 1) + np.diag(beside[: size - 1], -1)
    nodes, vectors = np.linalg.eigh(matrix)
    return nodes, amount * vectors[0] ** 2
