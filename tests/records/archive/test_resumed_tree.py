"""An import of a tree that was interrupted goes on only if what was read of the tree is as it was."""

import json
from pathlib import Path

import pytest

from batchscale.records.table.import_records import ImportOptions, import_records

from .conftest import small_members, table_bytes


class StopError(Exception):
    pass


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, data in small_members("tree").items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "tree"


def stop_after(calls: int) -> ImportOptions:
    """Parts of a few files each, and an import that ends after some of them."""
    left = calls

    def stop(_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise StopError

    return ImportOptions(part_bytes=2_000, on_progress=stop)


def interrupted(tree: Path, calls: int = 3) -> int:
    """The position of the checkpoint that an interrupted import left."""
    with pytest.raises(StopError):
        import_records(tree, tree.parent / "table", stop_after(calls))
    position = json.loads((tree.parent / ".table.partial" / "state.json").read_bytes())["position"]
    assert 0 < position < len(small_members())
    return int(position)


def resumed(tree: Path) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The files of the table when the import has gone on, and of one that was never interrupted."""
    import_records(tree, tree.parent / "table", ImportOptions(part_bytes=2_000))
    import_records(tree, tree.parent / "expected")
    return table_bytes(tree.parent / "table"), table_bytes(tree.parent / "expected")


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"nan", b"0.125"))


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of trials that are read from now on."""
    from batchscale.records.table import tree_source as source

    read, whole = [], source.read_marked_file
    monkeypatch.setattr(source, "read_marked_file", lambda path, limit: (read.append(str(path)), whole(path, limit))[1])
    return read


def test_an_interrupted_import_of_a_tree_goes_on_and_gives_the_same_bytes(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = interrupted(tree)
    read = count_reads(monkeypatch)
    found, expected = resumed(tree)
    assert found == expected
    second = len(small_members())  # files of the import that was never interrupted
    assert len(read) - second <= len(small_members()) - position + 1  # and a study.json again, for its name


def test_a_file_that_changed_before_the_checkpoint_starts_the_import_anew(tree: Path) -> None:
    interrupted(tree)
    change(tree / "group/mnist/fc/sgd/16/1/measurements.csv")  # the first trial: read before any checkpoint
    found, expected = resumed(tree)
    assert found == expected


def test_checkpoints_of_an_import_that_started_anew_are_its_own(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(tree, calls=4)
    change(tree / "group/mnist/fc/sgd/16/1/measurements.csv")
    position = interrupted(tree, calls=3)
    read = count_reads(monkeypatch)
    found, expected = resumed(tree)
    assert found == expected
    assert len(read) - len(small_members()) <= len(small_members()) - position + 1


def test_a_file_that_changed_behind_the_checkpoint_is_read_as_it_is_now(tree: Path) -> None:
    interrupted(tree)
    change(tree / "mnist/fc/sgd/8/10/measurements.csv")  # the last trial
    found, expected = resumed(tree)
    assert found == expected


def test_a_trial_that_vanished_before_the_checkpoint_starts_the_import_anew(tree: Path) -> None:
    interrupted(tree)
    for file in (tree / "group/mnist/fc/sgd/16/1").iterdir():
        file.unlink()
    (tree / "group/mnist/fc/sgd/16/1").rmdir()
    found, expected = resumed(tree)
    assert found == expected
