"""The end of what a process printed."""

import tempfile

from batchscale.log_tail import LAST_LINES, last_lines, open_log, read_tail


def test_the_end_of_a_log_is_read_whatever_it_holds(tmp_path):
    log = tmp_path / "log"
    assert read_tail(log) == "" and last_lines(log) == ()
    log.write_bytes(b"first\n" + b"x" * 30_000 + b"\n\xff last\n")
    assert len(read_tail(log)) == 20_000 and read_tail(log, 6) == " last\n"
    assert last_lines(log)[-1] == "\ufffd last" and "first" not in last_lines(log)
    log.write_text("\n".join(map(str, range(100))))
    assert last_lines(log) == tuple(str(number) for number in range(100 - LAST_LINES, 100))


def test_a_log_without_a_name_is_read_while_it_is_open():
    with tempfile.TemporaryFile() as file:
        file.write(b"some\nlast words")
        file.flush()
        assert last_lines(open_log(file.fileno())) == ("some", "last words")
