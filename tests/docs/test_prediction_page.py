"""The tables of docs/prediction.md are those of the kept results of benchmarks/prediction.py."""

from pathlib import Path

import polars as pl
import prediction_page
import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "prediction.md").read_text(encoding="utf-8")


def test_the_page_has_the_tables_of_the_kept_results():
    measured, predicted = prediction_page.read_kept()
    joined = prediction_page.join(measured, predicted)
    tables = (
        prediction_page.case_table(measured),
        prediction_page.prediction_table(joined),
        prediction_page.method_table(joined),
    )
    for table in tables:
        for line in table:
            assert line in PAGE.splitlines()
    assert len(measured) >= 10
    assert set(predicted["case"]) == set(measured["case"])


def test_factors_costs_and_overlaps():
    """Twice too small and twice too large are the same error; intervals that touch agree."""
    measured = {"case": ["a"], "b_crit": [100.0], "low": [80.0], "high": [120.0], "trial_steps": [1000]}
    predicted = {
        "case": ["a", "a", "a", "a"],
        "b_crit": [50.0, 200.0, None, 100.0],
        "low": [40.0, 120.0, None, None],
        "high": [79.0, None, None, None],
        "trial_steps": [10, 0, 100, 0],
    }
    joined = prediction_page.join(pl.DataFrame(measured), pl.DataFrame(predicted))
    assert joined["factor"].to_list() == pytest.approx([2.0, 2.0, None, 1.0])
    assert joined["overlaps"].to_list() == [False, True, None, None]  # no interval: nothing to overlap
    assert joined["cost"].to_list() == [0.01, 0.0, 0.1, 0.0]
