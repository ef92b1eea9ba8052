"""Output of commands: regular files are replaced whole, links stay, devices and pipes are written to."""

import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from batchscale.errors import SpecError
from batchscale.records.output_file import is_regular_or_missing, write_output


@pytest.fixture
def pipe(tmp_path):
    """A named pipe, and a function that returns what was written to it."""
    path, received = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: received.append(path.read_bytes()), daemon=True)
    reader.start()

    def read():
        reader.join(20)
        return received[0]

    return path, read


def make_device(path: Path, minor: int) -> None:
    """A character device of the kernel's memory driver: 3 is null, 7 is full."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        with path.open("wb"):
            pass
    except OSError:
        pytest.skip("devices cannot be made here")


def test_a_new_file_is_written_with_its_folders(tmp_path):
    write_output(tmp_path / "a" / "b" / "new.csv", "é\n")
    assert (tmp_path / "a" / "b" / "new.csv").read_bytes() == "é\n".encode()


def test_a_file_is_replaced_whole_and_keeps_its_permissions(tmp_path):
    file = tmp_path / "secret.csv"
    file.write_text("old")
    file.chmod(0o600)
    with file.open() as old:
        write_output(file, b"new")
        assert old.read() == "old"  # replaced, not written over
    assert file.read_text() == "new" and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_target_is_replaced(tmp_path, there):
    (tmp_path / "far").mkdir()
    target = tmp_path / "far" / "target.csv"
    if there:
        target.write_text("old")
    (tmp_path / "second").symlink_to("far/target.csv")
    (tmp_path / "first").symlink_to("second")
    write_output(tmp_path / "first", b"new")
    assert target.read_text() == "new"
    assert [str((tmp_path / name).readlink()) for name in ("first", "second")] == ["second", "far/target.csv"]


def test_a_link_through_a_linked_folder_leads_where_the_system_says(tmp_path):
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "short").symlink_to("real/inner")
    (tmp_path / "link").symlink_to("short/../file")  # real/file, not file
    write_output(tmp_path / "link", b"new")
    assert (tmp_path / "real" / "file").read_text() == "new" and not (tmp_path / "file").exists()


def test_a_pipe_is_written_to_through_a_link(tmp_path, pipe):
    path, read = pipe
    (tmp_path / "link").symlink_to("pipe")
    assert not is_regular_or_missing(tmp_path / "link")
    write_output(tmp_path / "link", b"x" * 200_000)  # more than a pipe holds at once
    assert read() == b"x" * 200_000
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_device_stays_a_device(tmp_path):
    make_device(tmp_path / "null", 3)
    write_output(tmp_path / "null", b"gone")
    state = (tmp_path / "null").stat()
    assert stat.S_ISCHR(state.st_mode) and state.st_rdev == os.makedev(1, 3)


def test_a_device_that_takes_nothing_is_an_error(tmp_path):
    make_device(tmp_path / "full", 7)
    with pytest.raises(SpecError, match="No space left"):
        write_output(tmp_path / "full", b"x")


def test_a_folder_a_socket_and_a_circle_of_links_are_refused_and_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for name, reason in [("folder", "is a folder"), ("socket", "is a socket"), ("circle", "symbolic links")]:
            with pytest.raises(SpecError, match=reason):
                write_output(tmp_path / name, b"x")
        assert stat.S_ISSOCK((tmp_path / "socket").stat().st_mode)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_path_that_no_system_has_is_an_error(tmp_path):
    for path in (tmp_path / "a\0b", tmp_path / ("x" * 300)):
        with pytest.raises(SpecError, match="can be written"):
            write_output(path, b"")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="descriptors are files on Linux only")
def test_standard_output_in_a_file_is_added_to(tmp_path):
    code = (
        "import sys; from pathlib import Path; from batchscale.records.output_file import write_output\n"
        "print('first'); write_output(Path('/dev/stdout'), b'second\\n'); print('third')"
    )
    with (tmp_path / "log").open("wb") as log:
        subprocess.run([sys.executable, "-c", code], stdout=log, check=True)
    assert (tmp_path / "log").read_text() == "first\nsecond\nthird\n"
