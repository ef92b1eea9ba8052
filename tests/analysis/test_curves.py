import numpy as np
import pytest

from batchscale.analysis.curves import detect_spacing, read_curve
from batchscale.errors import AnalysisError


@pytest.fixture
def read(tmp_path):
    def from_bytes(data):
        path = tmp_path / "curve.csv"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return read_curve(path)

    return from_bytes


def test_columns_may_stand_anywhere_and_rows_in_any_order(read):
    frame = read('steps,note,batch_size\r\n50,a,2\r\n100,"b,c",1\r\n')
    assert frame.rows() == [(1.0, 100.0), (2.0, 50.0)]


def test_a_byte_order_mark_blank_lines_and_spaces_are_no_matter(read):
    assert read(b"\xef\xbb\xbfbatch_size, steps\n\n1, 2.5\n \n").rows() == [(1.0, 2.5)]


def test_an_empty_cell_of_steps_is_a_batch_size_that_did_not_reach(read):
    assert read("batch_size,steps\n1,10\n2,\n").rows() == [(1.0, 10.0), (2.0, None)]


def test_a_batch_size_may_stand_in_several_rows_one_per_run(read):
    assert read("batch_size,steps\n2,6\n1,10\n2,5\n").rows() == [(1.0, 10.0), (2.0, 5.0), (2.0, 6.0)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "must name the columns"),
        ("a,b\n1,2\n", "must name the columns"),
        ("batch_size,steps,steps\n1,2,3\n", "once each"),
        ("batch_size,steps\n1\n", "line 2: a row has 2 cells. Found 1"),
        ("batch_size,steps\n1,x\n", "line 2: steps is a positive number. Found 'x'"),
        ("batch_size,steps\n1,nan\n", "positive number"),
        ("batch_size,steps\n1,inf\n", "positive number"),
        ("batch_size,steps\n1,1e400\n", "positive number"),
        ("batch_size,steps\n0,5\n", "batch_size is a positive number"),
        ("batch_size,steps\n-2,5\n", "batch_size is a positive number"),
        ("batch_size,steps\n1.5,5\n", "batch_size is a whole number"),
        (b"batch_size,steps\n\xff\xfe,5\n", "UTF-8"),
        (b"\x00\x01\x02", "must name the columns"),
        ('batch_size,steps\n"1,5\n', "must be a line of CSV"),
        ("batch_size,steps\n1,\x1b[31m5\n", r"\\x1b"),
    ],
)
def test_hostile_files_are_refused_with_the_line_and_the_rule(read, data, message):
    with pytest.raises(AnalysisError, match=message) as caught:
        read(data)
    assert "\x1b" not in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(AnalysisError, match="Found no file"):
            read_curve(path)


def test_a_file_of_unreasonable_size_is_refused(tmp_path):
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        file.truncate(20_000_000)
    with pytest.raises(AnalysisError, match="at most 10,000,000 bytes"):
        read_curve(path)


def test_a_curve_of_unreasonably_many_batch_sizes_is_refused(read):
    rows = "".join(f"{size},100\n" for size in range(1, 1002))
    with pytest.raises(AnalysisError, match=r"at most 1,000 batch sizes\. Found 1,001"):
        read("batch_size,steps\n" + rows)


def test_a_column_of_spacings_is_read_and_may_have_gaps(read):
    frame = read("batch_size,steps,spacing\n1,100,50\n2,50,\n")
    assert frame.rows() == [(1.0, 100.0, 50.0), (2.0, 50.0, None)]
    with pytest.raises(AnalysisError, match="spacing is a positive number"):
        read("batch_size,steps,spacing\n1,100,-5\n")


@pytest.mark.parametrize(
    ("steps", "spacing"),
    [
        ([500, 300, 250, 250], 50),
        ([50, 50, 100, 350], 50),  # the first evaluation had reached the goal, twice
        ([800, 400, 200, 100], 0),  # halves divide each other without any spacing
        ([100, 100, 100], 0),
        ([100, 200], 0),
        ([100.5, 200.5, 300.5], 0),
    ],
)
def test_a_spacing_shows_as_a_common_divisor(steps, spacing):
    assert detect_spacing(np.array(steps, float)) == spacing
