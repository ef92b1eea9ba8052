"""A file is replaced as a whole or not at all."""

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from batchscale.errors import StorageError
from batchscale.records.durable import REAL, replace_atomically, replace_durably, replacing_atomically

REPLACES = [replace_atomically, replace_durably]


@pytest.mark.parametrize("replace", REPLACES)
def test_text_and_bytes_replace_a_file(replace, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    replace(path, "größer")
    assert path.read_bytes() == "größer".encode()
    replace(path, b"\0\1")
    assert path.read_bytes() == b"\0\1"
    assert list(tmp_path.iterdir()) == [path]


def test_a_durable_file_gets_its_folders(tmp_path: Path) -> None:
    replace_durably(tmp_path / "a" / "b" / "file", "text")
    assert (tmp_path / "a" / "b" / "file").read_text() == "text"


def test_the_file_and_then_its_folder_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for name in ("fsync", "replace", "sync_directory"):
        real = getattr(REAL, name)
        monkeypatch.setattr(REAL, name, lambda *args, name=name, real=real: (calls.append(name), real(*args))[1])
    replace_durably(tmp_path / "file", "text")
    assert calls == ["fsync", "replace", "sync_directory"]


def test_a_full_disk_is_a_storage_error_and_the_old_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def refuse(handle: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(REAL, "write", refuse)
    with pytest.raises(StorageError, match=r"file: writing the file failed: No space left.*Free some space") as error:
        replace_durably(path, "new")
    assert error.value.errno == errno.ENOSPC
    assert path.read_text() == "old"


def test_a_block_that_raises_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing_atomically(path) as file:
        file.write(b"half")
        (beside,) = set(tmp_path.iterdir()) - {path}
        assert beside.name.endswith(".writing")  # which mirrors skip
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_mode_of_a_private_file_holds_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "token"
    replace_atomically(path, "secret", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_many_writers_of_one_file_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "file"
    texts = [str(number) * 10_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: replace_atomically(path, text), texts * 4))
    assert path.read_text() in texts
    assert list(tmp_path.iterdir()) == [path]
