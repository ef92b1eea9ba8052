"""Files that are read many at a time give the table and the problems that reading them line by line gives."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batchscale.records.table.files import read_manifest
from batchscale.records.table.import_records import ImportOptions, import_records
from batchscale.records.tree import bulk

from .conftest import small_members, table_bytes, write_tar

HEAD = b"step,val/error,train/error\n"
VARIANTS = {
    "plain": HEAD + b"0,1.5,2\n10,1.25,2\n",
    "more columns": b"step,val/error,train/error,val/more\n0,1.5,2,3\n",
    "other order": b"step,train/error,val/error\n0,1.5,2\n10,1,1\n",
    "column twice": b"step,val/error,val/error\n0,1,1\n",
    "quoted numbers": HEAD + b'0,"1.5",2\n',
    "quoted names": b'step,"val/error",train/error\n0,1.5,2\n',
    "carriage returns": (HEAD + b"0,1.5,2\n10,1.25,2\n").replace(b"\n", b"\r\n"),
    "byte order mark": b"\xef\xbb\xbf" + HEAD + b"0,1.5,2\n",
    "no last line end": HEAD + b"0,1.5,2\n10,1.25,2",
    "nan and inf": HEAD + b"0,nan,inf\n1,NaN,-Infinity\n2,+inf,-nan\n",
    "larger than any": HEAD + b"0,1e999,inf\n",
    "many digits": HEAD + b"0," + b"9" * 400 + b",1\n",
    "denormal": HEAD + b"0,1e-40,4.9e-324\n",
    "seven digits": HEAD + b"0,0.1234567,16777217\n",
    "empty cells": HEAD + b"0,,\n1,2,\n",
    "huge step": HEAD + b"9007199254740993,1,1\n",
    "step beyond all": HEAD + b"99999999999999999999,1,1\n",
    "step with a point": HEAD + b"0,1,1\n10.0,1,1\n",
    "negative step": HEAD + b"-1,1,1\n",
    "step twice": HEAD + b"5,1,1\n5,1,1\n",
    "steps fall": HEAD + b"5,1,1\n4,1,1\n",
    "short row": HEAD + b"0,1\n",
    "short and long row": HEAD + b"0,1\n1,1,1,1\n",
    "blank line": HEAD + b"0,1,1\n\n1,1,1\n",
    "blanks": HEAD + b"0, 1,1\n",
    "slash": HEAD + b"0,1/2,1\n",
    "underscore": HEAD + b"0,1_000,1\n",
    "hexadecimal": HEAD + b"0,0xf,1\n",
    "words": HEAD + b"0,fiat,1\n",
    "not utf-8": HEAD + b"0,\xff,1\n",
    "no bytes": b"",
    "no rows": HEAD,
    "no header": b"0,1,1\n",
    "line end alone": b"\n",
}


def variant_members(names: list[str]) -> dict[str, bytes]:
    """Archives whose trials have these measurements, as many as there are trials."""
    members = small_members()
    files = [path for path in members if path.endswith("measurements.csv")]
    return members | {path: VARIANTS[name] for path, name in zip(files, names, strict=False)}


def import_twice(folder: Path, members: dict[str, bytes]) -> list[tuple[dict[str, bytes], list[str]]]:
    """Parquet files and problems of an import that reads many files at once, and of one that never does."""
    archive = write_tar(folder / "x.tar", members)
    answers = []
    for name in ("fast", "careful"):
        with pytest.MonkeyPatch.context() as patch:
            if name == "careful":
                patch.setattr(bulk, "_parse_joined", lambda *_: None)
            import_records(archive, folder / name, ImportOptions(keep_going=True))
        files = {path: data for path, data in table_bytes(folder / name).items() if path.endswith(".parquet")}
        answers.append((files, read_manifest(folder / name)["problems"]))
    return answers


@pytest.mark.parametrize("name", VARIANTS)
def test_a_file_of_each_kind_beside_sound_ones_is_read_as_line_by_line(tmp_path: Path, name: str) -> None:
    fast, careful = import_twice(tmp_path, variant_members([name]))
    assert fast == careful


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(sorted(VARIANTS)), min_size=2, max_size=12))
@example(list(VARIANTS)[:12])
@example(list(VARIANTS)[12:24])
@example(list(VARIANTS)[22:])
def test_files_of_every_kind_together_are_read_as_line_by_line(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    fast, careful = import_twice(tmp_path_factory.mktemp("variants"), variant_members(names))
    assert fast == careful


def test_the_fast_way_is_taken_for_sound_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "parse_measurements", lambda _: pytest.fail("a sound file was read line by line"))
    names = ["plain", "other order", "carriage returns", "nan and inf", "empty cells", "no rows", "denormal"]
    import_records(write_tar(tmp_path / "x.tar", variant_members(names)), tmp_path / "table")
