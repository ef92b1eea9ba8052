"""The closed forms of the choice of runs against inverses of the whole precision, and against simulation."""

import numpy as np
import pytest

from batchscale.errors import AnalysisError
from batchscale.prediction.design import (
    CRITERIA,
    LinearState,
    choose_next,
    d_optimality,
    expected_shrinkage,
    v_optimality,
)

RANDOM = np.random.default_rng(3)
ROWS, CANDIDATES, ASKED = (RANDOM.normal(size=(count, 4)) for count in (9, 6, 2))
NOISE, PRIOR = 0.3, np.array([0.1, 1.0, 0.5, 2.0])
STATE = LinearState.of_rows(ROWS, NOISE, PRIOR)


def test_the_closed_forms_are_those_of_the_whole_inverse():
    for i, row in enumerate(CANDIDATES):
        after = LinearState.of_rows(np.vstack([ROWS, row]), NOISE, PRIOR)
        widths = np.sqrt(STATE.variance(ASKED) / after.variance(ASKED))
        assert expected_shrinkage(STATE, CANDIDATES, ASKED)[i] == pytest.approx(np.mean(np.log(widths)))
        gain = np.linalg.slogdet(STATE.covariance)[1] - np.linalg.slogdet(after.covariance)[1]
        assert d_optimality(STATE, CANDIDATES, ASKED)[i] == pytest.approx(gain)
        everywhere = np.vstack([CANDIDATES, ASKED])
        fall = np.mean(STATE.variance(everywhere) - after.variance(everywhere))
        assert v_optimality(STATE, CANDIDATES, ASKED)[i] == pytest.approx(fall)


def test_simulated_fits_are_as_uncertain_as_the_closed_form_says():
    best = int(np.argmax(expected_shrinkage(STATE, CANDIDATES, ASKED)))
    rows = np.vstack([ROWS, CANDIDATES[best]])
    after = LinearState.of_rows(rows, NOISE, PRIOR)
    truths = RANDOM.normal(size=(20_000, 4)) / np.sqrt(PRIOR)
    measured = truths @ rows.T + RANDOM.normal(size=(20_000, len(rows))) * np.sqrt(NOISE)
    fitted = measured @ rows / NOISE @ after.covariance
    errors = np.var((fitted - truths) @ ASKED.T, axis=0)
    np.testing.assert_allclose(errors, after.variance(ASKED), rtol=0.05)  # a variance of 20,000 draws: 1 % deviation


def test_a_dearer_run_must_gain_more():
    rows = np.array([[1.0, 0, 0, 0], [1.5, 0, 0, 0]])
    asked = np.array([[1.0, 0, 0, 0]])
    for criterion in CRITERIA.values():
        assert choose_next(STATE, rows, np.array([1.0, 1.0]), asked, criterion) == 1
        assert choose_next(STATE, rows, np.array([1.0, 50.0]), asked, criterion) == 0


def test_there_must_be_a_candidate_with_a_cost():
    with pytest.raises(AnalysisError, match="cost above 0"):
        choose_next(STATE, CANDIDATES, np.zeros(6), ASKED)
    with pytest.raises(AnalysisError, match="0 candidates"):
        choose_next(STATE, np.zeros((0, 4)), np.zeros(0), ASKED)
