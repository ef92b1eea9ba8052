"""Why a trial failed: what people read, what its record keeps, and what is left when it is cut."""

from hypothesis import given
from hypothesis import strategies as st

from batchscale.errors import TrialFailedError
from batchscale.study.failure import HEADING, Failure, find_failure

TEXTS = st.text(alphabet="ab \n.", max_size=12)
LINES = st.lists(st.text(alphabet="ab ", max_size=5), max_size=4).map(tuple)
FAILURES = st.builds(Failure, TEXTS, LINES, TEXTS)


@given(FAILURES)
def test_the_record_keeps_the_words_and_the_lines_that_people_read(failure):
    words, _, lines = str(failure).partition(HEADING)  # how records were filled before failures had parts
    assert failure.record == (words, tuple(lines.splitlines()))


@given(FAILURES, st.integers(0, 60))
def test_what_is_left_of_a_failure_is_its_beginning(failure, limit):
    left = failure.cut(limit)
    whole = str(failure)
    assert len(str(left)) <= max(limit, 0) and whole.startswith(str(left).removesuffix(HEADING))
    lost = len(whole[:limit]) - len(str(left))
    assert lost == 0 or (failure.log_lines and not left.log_lines and lost <= len(HEADING))


def test_an_error_says_what_it_was_raised_with():
    failure = Failure("It left.", ("bye",))
    error = TrialFailedError(failure)
    assert find_failure(error) is failure and str(error) == "It left.\nIts last lines:\nbye"
    assert find_failure(MemoryError(failure.preceded_by("Out of memory: "))).message == "Out of memory: It left."
    assert find_failure(ValueError("no")) == Failure("no") and find_failure(KeyError()) == Failure("")
