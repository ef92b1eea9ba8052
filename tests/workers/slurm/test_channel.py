"""Messages through a file that two processes see: whole, in order, once, however the file looks in between."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchscale.workers.slurm.channel import ChannelReader, ChannelWriter, make_channel


@pytest.fixture
def stem(tmp_path):
    make_channel(tmp_path / "out")
    return tmp_path / "out"


def test_messages_come_once_and_in_order(stem):
    writer, reader = ChannelWriter(stem), ChannelReader(stem)
    assert reader.read() == []
    for number in range(3):
        writer.write(b"message %d" % number)
    assert reader.read() == [b"message 0", b"message 1", b"message 2"]
    assert reader.read() == []
    writer.write(b"more")
    assert reader.read() == [b"more"]


@settings(deadline=None)  # a disk that others use has its own time
@given(cut=st.integers(0, 200), zeros=st.booleans())
def test_a_message_that_is_not_whole_yet_is_waited_for(tmp_path_factory, cut, zeros):
    stem = tmp_path_factory.mktemp("box") / "out"
    make_channel(stem)
    writer, reader, file = ChannelWriter(stem), ChannelReader(stem), stem.with_name("out.0")
    writer.write(b"first")
    writer.write(b"second " + b"x" * 150)
    whole = file.read_bytes()
    cut = min(cut, len(whole))
    part = whole[:cut] + (b"\0" * (len(whole) - cut) if zeros else b"")  # a server may show the size before the bytes
    file.write_bytes(part)
    early = reader.read()
    file.write_bytes(whole)
    assert early + reader.read() == [b"first", b"second " + b"x" * 150]


def test_what_a_full_disk_cut_off_is_written_again_without_a_trace(stem, monkeypatch):
    from batchscale.workers.slurm import channel

    writer, reader = ChannelWriter(stem), ChannelReader(stem)
    writer.write(b"first")
    write = channel.os.write

    def fill_up(handle, data):
        if len(data) > 5:
            return write(handle, data[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(channel.os, "write", fill_up)
    with pytest.raises(OSError, match="No space"):
        writer.write(b"second")
    monkeypatch.setattr(channel.os, "write", write)
    assert reader.read() == [b"first"]
    writer.write(b"second")
    assert reader.read() == [b"second"]


def test_a_long_channel_continues_in_other_files_and_read_ones_are_removed(stem):
    writer, reader = ChannelWriter(stem, max_bytes=100), ChannelReader(stem)
    received = []
    for number in range(50):
        writer.write(b"%030d" % number)
        if number % 7 == 0:
            received += reader.read()
        assert len(list(stem.parent.iterdir())) <= 4
    received += reader.read()
    assert received == [b"%030d" % number for number in range(50)]
    assert len(list(stem.parent.iterdir())) == 1


def test_threads_may_write_at_once(stem):
    writer, reader = ChannelWriter(stem), ChannelReader(stem)
    threads = [
        threading.Thread(target=lambda n=n: [writer.write(b"%d-%d" % (n, i)) for i in range(50)]) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    received = reader.read()
    assert len(received) == 200
    for n in range(4):
        assert [message for message in received if message.startswith(b"%d-" % n)] == [
            b"%d-%d" % (n, i) for i in range(50)
        ]


def test_a_removed_channel_is_an_error(stem):
    reader, writer = ChannelReader(stem), ChannelWriter(stem)
    stem.with_name("out.0").unlink()
    with pytest.raises(FileNotFoundError):
        reader.read()
    with pytest.raises(FileNotFoundError):
        writer.write(b"x")
