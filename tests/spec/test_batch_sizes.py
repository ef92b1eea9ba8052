import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchscale.errors import SpecError
from batchscale.spec.batch_sizes import BatchSizes


def test_a_range_gives_powers_of_two_or_of_its_factor():
    assert BatchSizes.parse("1..4096").sizes == tuple(2**p for p in range(13))
    assert BatchSizes.parse("2..8192 by 4").sizes == (2, 8, 32, 128, 512, 2048, 8192)
    assert BatchSizes.parse("3..50 by 2").sizes == (3, 6, 12, 24, 48)


def test_a_list_may_mix_numbers_ranges_and_full():
    sizes = BatchSizes.parse([64, "1..8", "full", 64])
    assert sizes.sizes == (1, 2, 4, 8, 64)
    assert sizes.resolve(1000) == (1, 2, 4, 8, 64, 1000)
    assert sizes.resolve(64) == (1, 2, 4, 8, 64)
    assert BatchSizes.parse(sizes.to_json()) == sizes


def test_more_than_the_training_set_is_only_allowed_as_full():
    with pytest.raises(SpecError, match=r'training set of 50 examples\. Found 64\. Write "full"'):
        BatchSizes.parse([64]).resolve(50)


def test_sampled_data_has_no_full_batch_and_no_limit():
    assert BatchSizes.parse([2**30]).resolve(None) == (2**30,)
    with pytest.raises(SpecError, match="sampled"):
        BatchSizes.parse("full").resolve(None)


@pytest.mark.parametrize(
    "value",
    [[], 0, -1, [0], [1, -8], 1.5, True, "1-8", "8..1", "0..8", "1..8 by 1", "1..9999999999999", None, {}, [[1]]],
)
def test_what_is_no_batch_size_is_refused(value):
    with pytest.raises(SpecError, match="Batch sizes are a list of whole numbers"):
        BatchSizes.parse(value)


@given(st.text(max_size=30) | st.lists(st.integers() | st.text(max_size=5)))
def test_any_value_is_batch_sizes_or_a_clear_refusal(value):
    try:
        sizes = BatchSizes.parse(value)
    except SpecError as error:
        assert "\n" not in str(error)
    else:
        assert sizes.full or all(size >= 1 for size in sizes.sizes)
