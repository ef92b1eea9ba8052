import pytest
from page_tables import assert_on_page, read_tables, same_cell

PAGE = """
| size | steps | rate |
|---:|---:|---|
| 2 | 1,758 to 2,638 | 0.28 |

| size | other |
|---|---|
| 2 | – |
"""


@pytest.mark.parametrize(
    ("mine", "printed", "share", "same"),
    [
        ("1,758 to 2,637", "1,758 to 2,638", 0.0, False),
        ("1,758 to 2,637", "1,758 to 2,638", 0.001, True),
        ("3", "2", 0.001, True),
        ("1,758 to 2,600", "1,758 to 2,638", 0.0, False),
        ("1,758 to 2,600", "1,758 to 2,638", 0.02, True),
        ("0.29", "0.28", 0.0, True),
        ("0.30", "0.28", 0.0, False),
        ("0.3", "0.29", 0.0, True),  # ".3g" leaves the zero out
        ("4.6e-07", "4.5e-07", 0.0, True),
        ("4.7e-07", "4.5e-07", 0.0, False),
        ("-0.05", "+0.05", 0.0, False),
        ("512 at least", "512", 0.0, False),
        ("fc_128, measured", "fc_128, published", 0.0, False),
    ],
)
def test_decimals_may_differ_by_their_last_digit_and_counts_and_words_never(mine, printed, share, same):
    assert same_cell(mine, printed, share) is same


def test_a_table_is_found_by_its_columns_and_its_differences_are_named():
    made, other = read_tables(PAGE)
    assert other == [["size", "other"], ["2", "–"]]
    assert_on_page([made[0], ["2", "1,759 to 2,638", "0.28"]], PAGE, {"steps": 0.001})
    with pytest.raises(AssertionError, match=r"steps: the page has '1,758 to 2,638' where '1,790 to 2,638'"):
        assert_on_page([made[0], ["2", "1,790 to 2,638", "0.28"]], PAGE, {})
    with pytest.raises(AssertionError, match="no table on the page"):
        assert_on_page([["size", "rate"], ["2", "0.28"]], PAGE, {})
    with pytest.raises(AssertionError, match="3 rows are computed, the page has 2"):
        assert_on_page([*made, made[1]], PAGE, {})
