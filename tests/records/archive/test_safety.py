"""An archive is hostile input: whatever is in it, nothing is written outside and nothing is used up."""

import bz2
import gzip
import io
import lzma
import random
import tarfile
import time
from pathlib import Path

import pytest

from batchscale.errors import DataError, RecordsError
from batchscale.records.archive import ArchiveLimits, ArchiveStream, iter_archive, locate
from batchscale.records.read import read_records
from batchscale.records.table.files import read_manifest
from batchscale.records.table.import_records import ImportOptions, import_records
from batchscale.workloads.datasets.files.archives import iter_members

from .conftest import small_members, table_bytes, write_tar

KEEP_GOING = ImportOptions(keep_going=True)


def everything_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "name",
    [
        "../evil/mnist/fc/sgd/8/study.json",
        "/etc/mnist/fc/sgd/8/study.json",
        "root/../../mnist/fc/sgd/8/study.json",
        "root\\..\\mnist/fc/sgd/8/study.json",
        "root/mnist/fc/sgd/8/../8/study.json",
    ],
)
def test_a_name_that_leads_outside_is_refused_and_writes_nothing(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    archive = write_tar(tmp_path / "x.tar", small_members() | {name: b"{}"})
    before = everything_below(tmp_path)
    with pytest.raises(RecordsError, match="stays inside it"):
        import_records(archive, inner / "table")
    assert everything_below(tmp_path) == before
    summary = import_records(archive, inner / "table", KEEP_GOING)
    assert len(summary.problems) == 1
    assert summary.studies == 4
    assert everything_below(tmp_path) - before == {
        path for path in everything_below(tmp_path) if path.startswith("a/b/table")
    }


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE],
)
def test_links_devices_and_sparse_files_are_never_used(tmp_path: Path, kind: bytes) -> None:
    archive = write_tar(tmp_path / "x.tar", small_members())
    with tarfile.open(archive, "a") as tar:
        info = tarfile.TarInfo("root/mnist/fc/sgd/8/77/metadata.json")
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(RecordsError, match="regular files and folders only"):
        import_records(archive, tmp_path / "table")
    assert import_records(archive, tmp_path / "table", KEEP_GOING).trials == {"COMPLETE": 12}


def test_hostile_folder_names_cannot_become_files_of_the_table(tmp_path: Path) -> None:
    members = small_members() | {"root/mnist/fc/dataset=x%2F..%2F/8/study.json": b"{}"}
    with pytest.raises(RecordsError, match="letters, digits"):
        import_records(write_tar(tmp_path / "x.tar", members), tmp_path / "table")


def test_a_decompression_bomb_stops_with_a_message(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.tar.bz2"
    header = tarfile.TarInfo("root/mnist/fc/sgd/8/1/measurements.csv")
    header.size = 120 * 2**20
    block = bz2.compress(bytes(20 * 2**20))
    bomb.write_bytes(bz2.compress(header.tobuf()) + block * 6)
    assert bomb.stat().st_size < 1_000
    with pytest.raises(RecordsError, match="decompression bomb"):
        import_records(bomb, tmp_path / "table", KEEP_GOING)
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (ArchiveLimits(members=5), "at most 5 members"),
        (ArchiveLimits(member_bytes=100), "at most 100 bytes"),
        (ArchiveLimits(total_bytes=5_000), "may hold at most 5,000 bytes"),
        (ArchiveLimits(ratio=2, small_bytes=100), "decompression bomb"),
    ],
)
def test_limits_hold(tmp_path: Path, limits: ArchiveLimits, message: str) -> None:
    archive = write_tar(tmp_path / "x.tar.gz", small_members())
    with pytest.raises(RecordsError, match=message):
        import_records(archive, tmp_path / "table", ImportOptions(keep_going=True, limits=limits))


def test_a_huge_extended_header_is_not_read_into_memory(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 2**40
    (tmp_path / "x.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(10_240))
    with pytest.raises(RecordsError, match="at most"):
        import_records(tmp_path / "x.tar", tmp_path / "table")


def test_a_chain_of_long_names_does_not_overflow_the_stack(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1
    (tmp_path / "x.tar").write_bytes((info.tobuf() + bytes(512)) * 3_000)
    with pytest.raises(RecordsError):
        import_records(tmp_path / "x.tar", tmp_path / "table")


def test_too_many_problems_stop_even_a_patient_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchscale.records.table.read_source.MAX_PROBLEMS", 3)
    members = small_members() | {f"../{i}": b"" for i in range(5)}
    with pytest.raises(RecordsError, match="at most 3 problems"):
        import_records(write_tar(tmp_path / "x.tar", members), tmp_path / "table", KEEP_GOING)


def test_what_is_no_archive_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "x.tar.bz2").write_bytes(b"hello " * 1_000)
    with pytest.raises(RecordsError, match="an archive is a tar file"):
        import_records(tmp_path / "x.tar.bz2", tmp_path / "table")
    (tmp_path / "empty.tar").write_bytes(b"")
    with pytest.raises(RecordsError):
        import_records(tmp_path / "empty.tar", tmp_path / "table")
    assert everything_below(tmp_path) == {"x.tar.bz2", "empty.tar"}


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst"])
def test_an_archive_cut_at_any_byte_is_never_taken_for_a_whole_one(tmp_path: Path, suffix: str) -> None:
    whole = write_tar(tmp_path / f"whole{suffix}", small_members())
    if suffix == ".tar.zst":
        import zstandard

        plain = write_tar(tmp_path / "plain.tar", small_members())
        whole.write_bytes(zstandard.compress(plain.read_bytes()))
    import_records(whole, tmp_path / "expected")
    expected = read_manifest(tmp_path / "expected")["counts"]
    data = whole.read_bytes()
    for number, cut in enumerate(random.Random(suffix).sample(range(1, len(data)), 20)):
        torn = tmp_path / f"torn{number}{suffix}"
        torn.write_bytes(data[:cut])
        table = tmp_path / f"table{number}"
        try:
            import_records(torn, table)
        except RecordsError:
            assert not table.exists()
        else:  # only what stands behind the end of the archive was cut off
            assert read_manifest(table)["counts"] == expected


def test_what_stands_before_a_tear_is_imported_by_keep_going(tmp_path: Path) -> None:
    members = small_members()
    whole = write_tar(tmp_path / "whole.tar", members)
    torn = tmp_path / "torn.tar"
    torn.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with pytest.raises(
        RecordsError, match=r"damaged or cut off .* at byte [\d,]+ .*Before it stand 3 studies with 6 tr"
    ):
        import_records(torn, tmp_path / "table")
    summary = import_records(torn, tmp_path / "table", KEEP_GOING)
    assert not summary.complete
    assert "cut off" in summary.problems[0]
    assert 6 <= sum(summary.trials.values()) < 12
    assert read_records(tmp_path / "table").workloads


def test_a_damaged_block_names_its_position_and_what_stands_before_it(tmp_path: Path) -> None:
    plain = write_tar(tmp_path / "plain.tar", small_members()).read_bytes()
    half = len(plain) // 2
    second = bytearray(bz2.compress(plain[half:]))
    second[len(second) // 2] ^= 0xFF
    archive = tmp_path / "damaged.tar.bz2"
    archive.write_bytes(bz2.compress(plain[:half]) + second)
    with pytest.raises(RecordsError, match=r"damaged or cut off .* at byte [\d,]+"):
        import_records(archive, tmp_path / "table")
    summary = import_records(archive, tmp_path / "table", KEEP_GOING)
    assert not summary.complete
    assert summary.studies >= 1


def test_data_behind_the_end_of_the_archive_is_damage(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "x.tar", small_members())
    other = write_tar(tmp_path / "y.tar", small_members("other"))
    archive.write_bytes(archive.read_bytes() + other.read_bytes())
    with pytest.raises(RecordsError, match="behind the end mark"):
        import_records(archive, tmp_path / "table")


def test_duplicate_members_are_refused_or_the_first_one_counts(tmp_path: Path) -> None:
    members = list(small_members().items())
    twice = [*members, (members[2][0], members[2][1].replace(b"nan", b"0.5"))]
    archive = write_tar(tmp_path / "twice.tar", twice)
    with pytest.raises(RecordsError, match="is in an archive once"):
        import_records(archive, tmp_path / "table")
    assert len(import_records(archive, tmp_path / "table", KEEP_GOING).problems) == 1
    import_records(write_tar(tmp_path / "once.tar", members), tmp_path / "expected")
    names = [name for name in table_bytes(tmp_path / "expected") if name.endswith(".parquet")]
    assert [table_bytes(tmp_path / "table")[name] for name in names] == [
        table_bytes(tmp_path / "expected")[name] for name in names
    ]


def test_names_of_the_layout_are_told_from_others() -> None:
    assert locate("./a/b/c/8/study.json") == ("a/b/c", 8, None, "study.json")
    assert locate("a/b/c/8/1/notes.txt") is None
    assert isinstance(locate("a/b/c/08/study.json"), str)
    assert isinstance(locate("b/c/8/study.json"), str)


def test_an_archive_can_be_read_from_memory_of_no_size(tmp_path: Path) -> None:
    empty = io.BytesIO()
    with tarfile.open(fileobj=empty, mode="w"):
        pass
    (tmp_path / "x.tar").write_bytes(empty.getvalue())
    with pytest.raises(RecordsError):
        import_records(tmp_path / "x.tar", tmp_path / "table")


def header(size: int, kind: bytes, name: bytes = b"x") -> bytes:
    """A header block by hand: tarfile writes no absurd ones."""
    info = tarfile.TarInfo(name.decode())
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


def pax(content: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    return header(len(content), kind) + padded(content)


def pax_record(key: bytes, value: bytes) -> bytes:
    length = len(key) + len(value) + 3
    digits = len(str(length + len(str(length))))
    return b"%d %s=%s\n" % (length + digits, key, value)


LONG_NAME = tarfile.GNUTYPE_LONGNAME
ABSURD = {
    "a long number": pax(b"1" * 1_000_000),
    "a short header of digits": pax(b"1" * 16_000),
    "digits as a value": pax(pax_record(b"comment", b"1" * 15_000)),
    "a long name": header(2**26, LONG_NAME) + bytes(2**20),
    "a chain of long names": (header(5, LONG_NAME) + padded(b"name\0")) * 3_000,
    "a chain of pax headers": pax(pax_record(b"comment", b"x")) * 3_000,
    "a negative size": header(-1, LONG_NAME),
    "sparse": pax(pax_record(b"GNU.sparse.major", b"1") + pax_record(b"GNU.sparse.minor", b"0")),
    "global keys": b"".join(
        pax(b"".join(pax_record(b"k%d.%d" % (n, k), b"x") for k in range(100)), tarfile.XGLTYPE) for n in range(5)
    ),
}


@pytest.mark.parametrize("compress", [bytes, bz2.compress, gzip.compress, lzma.compress])
@pytest.mark.parametrize("absurd", ABSURD.values(), ids=ABSURD)
def test_absurd_headers_are_refused_before_they_are_processed(tmp_path: Path, absurd: bytes, compress) -> None:
    first = tmp_path / "first.tar"
    first.write_bytes(compress(absurd + header(0, b"0") + bytes(1024)))
    started = time.process_time()
    with pytest.raises(RecordsError):
        import_records(first, tmp_path / "table")
    with pytest.raises(DataError):
        list(iter_members(first))
    assert time.process_time() - started < 10  # it took minutes


@pytest.mark.parametrize("format_", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_and_odd_numbers_of_real_archives_are_read(tmp_path: Path, format_: int) -> None:
    path = tmp_path / "x.tar"
    name = "/".join(["g" * 50] * 5) + "/mnist/fc/sgd/8/study.json"
    with tarfile.open(path, "w", format=format_, pax_headers={"comment": "all"}) as tar:
        for member in (name, "é/" + name):
            info = tarfile.TarInfo(member)
            info.size, info.mtime = 2, 1.5 if format_ == tarfile.PAX_FORMAT else 1
            tar.addfile(info, io.BytesIO(b"{}"))
    assert [found for found, _ in iter_members(path)] == [name, "é/" + name]
    with ArchiveStream(path, ArchiveLimits()) as stream:
        first, second = iter_archive(stream)
    assert first.path == name and first.data == b"{}"
    assert "names of folders" in second.problem
