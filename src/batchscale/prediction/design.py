"""The choice of the next run: how much each candidate is expected to narrow what is asked for, per cost. Closed form.

A law with parameters θ is linear in them near its fit, with the covariance V of θ. A run with the row of derivatives j
and noise σ² changes V to V - V·j·jᵀ·V / (σ² + jᵀVj), whatever it measures. So what it will do to any interval is known
before it is trained.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from batchscale.errors import AnalysisError
from batchscale.noisy_quadratic.problem import Floats


@dataclass(frozen=True, eq=False)
class LinearState:
    """What is known of a law near its fit.

    Attributes:
        covariance: V, of the parameters.
        noise: σ², the variance of a measurement around the law.
    """

    covariance: Floats
    noise: float

    @classmethod
    def of_rows(cls, rows: Floats, noise: float, prior: Floats) -> "LinearState":
        """Return the state after runs with these rows of derivatives.

        Args:
            rows: One row per run; may be empty.
            noise: σ².
            prior: The precision of each parameter before any run; positive where the runs leave one open.
        """
        precision = rows.T @ rows / noise + np.diag(prior)
        return cls(np.asarray(np.linalg.inv(precision), dtype=np.float64), noise)

    def variance(self, rows: Floats) -> Floats:
        """Return the variance of the law at each row."""
        variances: Floats = np.einsum("ni,ij,nj->n", rows, self.covariance, rows)
        return variances


def expected_shrinkage(state: LinearState, candidates: Floats, asked: Floats) -> Floats:
    """Return, for each candidate, the expected log of the factor by which the asked-for intervals narrow (mean).

    ``asked`` has one row of derivatives for each quantity that is asked for, such as the loss of a large run.

    >>> state = LinearState.of_rows(np.zeros((0, 1)), 1.0, np.array([1.0]))
    >>> expected_shrinkage(state, np.array([[1.0]]), np.array([[1.0]])).round(3).tolist()  # the variance halves
    [0.347]
    """
    shares = _removed(state, candidates, asked) / state.variance(asked)[None, :]
    shrinkage: Floats = np.mean(-0.5 * np.log1p(-np.minimum(shares, 1 - 1e-12)), axis=1)
    return shrinkage


def d_optimality(state: LinearState, candidates: Floats, asked: Floats) -> Floats:
    """Return the gain in log determinant of the precision of all parameters, whatever is asked for."""
    del asked
    gain: Floats = np.log1p(state.variance(candidates) / state.noise)
    return gain


def v_optimality(state: LinearState, candidates: Floats, asked: Floats) -> Floats:
    """Return by how much the variance of the law falls, on average over all candidates and what is asked for."""
    everywhere = np.concatenate([candidates, asked])
    fall: Floats = np.mean(_removed(state, candidates, everywhere), axis=1)
    return fall


Criterion = Callable[[LinearState, Floats, Floats], Floats]
CRITERIA: Mapping[str, Criterion] = {
    "shrinkage": expected_shrinkage,
    "d_optimal": d_optimality,
    "v_optimal": v_optimality,
}


def choose_next(
    state: LinearState, candidates: Floats, costs: Floats, asked: Floats, criterion: Criterion = expected_shrinkage
) -> int:
    """Return the number of the candidate with the largest gain per cost; of equal ones the first.

    Raises:
        AnalysisError: There is no candidate, or a cost is not positive.
    """
    if not len(candidates) or np.min(costs) <= 0:
        least = float(np.min(costs)) if len(costs) else 0.0
        raise AnalysisError(
            "The next run is chosen among one candidate or more, each with a cost above 0. "
            f"Found {len(candidates)} candidates and a least cost of {least:g}."
        )
    return int(np.argmax(criterion(state, candidates, asked) / costs))


def _removed(state: LinearState, candidates: Floats, asked: Floats) -> Floats:
    """Return the variance that each candidate (row) removes from each asked-for quantity (column)."""
    shared = candidates @ state.covariance @ asked.T
    removed: Floats = shared**2 / (state.noise + state.variance(candidates))[:, None]
    return removed
