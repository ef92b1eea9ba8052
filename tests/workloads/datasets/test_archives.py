import io
import stat
import tarfile
import zipfile

import pytest

from batchscale.errors import DataError
from batchscale.workloads.datasets.files.archives import extract_all, iter_members, read_members

LIMIT = 10**6


def make_tar(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content, change in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for key, value in change.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "a//b", "a\\..\\b", "a/\n", "x" * 300, "a:b", ""])
@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_no_member_is_written_outside_or_under_an_odd_name(tmp_path, name, kind):
    path = tmp_path / f"set.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(zipfile.ZipInfo(name or "."), b"x")
    else:
        make_tar(path, [(name, b"x", {})])
    (tmp_path / "deep").mkdir()
    target = tmp_path / "deep" / "out"
    with pytest.raises(DataError, match="plain path inside"):
        extract_all(path, target, LIMIT)
    assert sorted(p.name for p in tmp_path.rglob("*")) == sorted(["deep", path.name])


def test_links_and_devices_are_passed_over(tmp_path):
    path = make_tar(
        tmp_path / "set.tar.gz",
        [
            ("link", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}),
            ("hard", b"", {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"}),
            ("pipe", b"", {"type": tarfile.FIFOTYPE}),
            ("folder", b"", {"type": tarfile.DIRTYPE}),
            ("file", b"content", {}),
            (".hidden", b"rubbish", {}),
        ],
    )
    assert extract_all(path, tmp_path / "out", LIMIT) == 1
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["file"]


def test_a_file_behind_a_link_of_its_archive_stays_inside(tmp_path):
    (tmp_path / "outside").mkdir()
    path = make_tar(
        tmp_path / "set.tar.gz",
        [
            ("escape", b"", {"type": tarfile.SYMTYPE, "linkname": str(tmp_path / "outside")}),
            ("escape/file", b"content", {}),
        ],
    )
    extract_all(path, tmp_path / "out", LIMIT)
    assert not list((tmp_path / "outside").iterdir())
    assert (tmp_path / "out" / "escape" / "file").read_bytes() == b"content"


def test_links_in_a_zip_are_passed_over(tmp_path):
    path = tmp_path / "set.zip"
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("file", b"content")
    assert extract_all(path, tmp_path / "out", LIMIT) == 1


def test_a_bomb_is_stopped_at_the_limit(tmp_path):
    path = make_tar(tmp_path / "set.tar.gz", [("zeros", bytes(3 * LIMIT), {})])
    assert path.stat().st_size < 10_000
    with pytest.raises(DataError, match="more than 1,000,000 bytes"):
        extract_all(path, tmp_path / "out", LIMIT)
    with pytest.raises(DataError, match="larger than"):
        list(read_members(path, {"zeros"}, LIMIT))


def test_the_same_path_twice_is_refused(tmp_path):
    path = make_tar(tmp_path / "set.tar.gz", [("file", b"1", {}), ("file", b"2", {})])
    with pytest.raises(DataError, match="two files of the same path"):
        extract_all(path, tmp_path / "out", LIMIT)


@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz", "zip"])
def test_every_cut_of_an_archive_is_an_error_of_ours_or_a_shorter_list(tmp_path, kind):
    path = tmp_path / f"set.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("file", bytes(range(256)) * 9)
    else:
        with tarfile.open(path, f"w:{kind[4:]}") as archive:
            member = tarfile.TarInfo("file")
            member.size = 256 * 9
            archive.addfile(member, io.BytesIO(bytes(range(256)) * 9))
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        try:
            found = [file.read() for _, file in iter_members(path)]
        except (DataError, tarfile.TarError, EOFError, OSError):
            continue
        assert all(len(one) <= 256 * 9 for one in found)


def test_a_damaged_archive_is_named(tmp_path):
    path = tmp_path / "set.tar.gz"
    path.write_bytes(b"not an archive")
    with pytest.raises(DataError, match=r"set\.tar\.gz cannot be read"):
        extract_all(path, tmp_path / "out", LIMIT)
