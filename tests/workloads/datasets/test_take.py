import gzip
import hashlib
import tarfile

import pytest

from batchscale.errors import DataError
from batchscale.workloads.datasets.files.fetch import use_files
from batchscale.workloads.datasets.files.official import Download, OfficialFile, Origin

ONE, TWO = b"one" * 1000, b"two" * 1000


def official(name, content):
    return OfficialFile(name, len(content), hashlib.sha256(content).hexdigest())


KNOWN = Origin(
    "letters", (Download("one.gz", (), (official("one", ONE),)), Download("two", (), (official("two", TWO),))), "", ""
)
UNKNOWN = Origin("images", (), "", "find them")


def is_there(folder):
    return (folder / "train").is_dir()


@pytest.fixture
def mine(tmp_path):
    folder = tmp_path / "mine" / "inner"
    folder.mkdir(parents=True)
    (folder / "one.gz").write_bytes(gzip.compress(ONE))
    (folder / "two").write_bytes(TWO)
    return tmp_path / "mine"


def test_official_files_are_found_verified_and_copied(tmp_path, mine):
    path, verified = use_files(KNOWN, mine, is_there, tmp_path / "data")
    assert verified
    assert path == tmp_path / "data" / "letters"
    assert sorted(p.name for p in path.iterdir()) == ["one.gz", "two"]
    assert (path / "two").read_bytes() == TWO


def test_official_files_come_out_of_an_archive(tmp_path, mine):
    with tarfile.open(tmp_path / "mine.tar", "w") as archive:
        (mine / "one").write_bytes(ONE)
        archive.add(mine / "one", "x/one")
        archive.add(mine / "inner" / "two", "x/two")
    path, verified = use_files(KNOWN, tmp_path / "mine.tar", is_there, tmp_path / "data")
    assert verified
    assert (path / "one").read_bytes() == ONE


def test_a_file_that_is_not_the_official_one_is_named_with_both_checksums(tmp_path, mine):
    (mine / "inner" / "two").write_bytes(TWO[::-1])
    with pytest.raises(DataError, match=rf"two is not the official two.*{official('two', TWO).sha256}"):
        use_files(KNOWN, mine, is_there, tmp_path / "data")
    assert not (tmp_path / "data" / "letters").exists()


def test_a_missing_official_file_is_named(tmp_path, mine):
    (mine / "inner" / "two").unlink()
    with pytest.raises(DataError, match="Missing: two"):
        use_files(KNOWN, mine, is_there, tmp_path / "data")


def test_a_folder_without_known_checksums_is_linked(tmp_path):
    (tmp_path / "mine" / "train").mkdir(parents=True)
    path, verified = use_files(UNKNOWN, tmp_path / "mine", is_there, tmp_path / "data")
    assert not verified
    assert path.is_symlink()
    assert path.resolve() == tmp_path / "mine"


def test_an_archive_without_known_checksums_is_unpacked(tmp_path):
    (tmp_path / "mine" / "train").mkdir(parents=True)
    (tmp_path / "mine" / "train" / "a.jpg").write_bytes(b"a")
    with tarfile.open(tmp_path / "mine.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "mine", "top")
    path, _ = use_files(UNKNOWN, tmp_path / "mine.tar.gz", is_there, tmp_path / "data")
    assert (path / "train" / "a.jpg").read_bytes() == b"a"


def test_a_folder_of_something_else_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(DataError, match="does not look like data set 'images': find them"):
        use_files(UNKNOWN, tmp_path / "mine", is_there, tmp_path / "data")
    with pytest.raises(DataError, match="does not exist"):
        use_files(UNKNOWN, tmp_path / "nowhere", is_there, tmp_path / "data")
    (tmp_path / "file.txt").write_text("x")
    with pytest.raises(DataError, match="a folder or an archive"):
        use_files(UNKNOWN, tmp_path / "file.txt", is_there, tmp_path / "data")


def test_what_is_there_is_not_replaced_by_a_link(tmp_path):
    (tmp_path / "mine" / "train").mkdir(parents=True)
    (tmp_path / "data" / "images").mkdir(parents=True)
    with pytest.raises(DataError, match="already exists"):
        use_files(UNKNOWN, tmp_path / "mine", is_there, tmp_path / "data")
