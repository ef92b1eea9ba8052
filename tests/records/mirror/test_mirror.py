"""A tree and its mirror: what is copied, what is restored, and what failures leave behind. In a folder, by fsspec."""

import json

import pytest

from batchscale.errors import RecordsError, StorageError
from batchscale.records.mirror import MirroredFile, Mirroring, manifest_text, open_mirror


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/remote"


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "records"
    for name, text in {
        "digits/fc/sgd/8/study.json": "{}",
        "digits/fc/sgd/8/1/metadata.json": '{"status": "COMPLETE"}',
        "digits/fc/sgd/8/1/measurements.csv": "step,val/loss\n0,1.0\n",
        ".batchscale/experiment.json": "{}",
        ".batchscale/checkpoints/8/2.newest.npz": "state",
    }.items():
        write(root / name, text)
    write(root / ".batchscale/run.lock", "17")
    write(root / ".batchscale/logs/worker-0.log", "words")
    write(root / ".batchscale/checkpoints/8/2.newest.npz.17.writing", "half")
    return root


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def contents(root):
    return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}


def wanted(root):
    left_out = (".lock", ".log", ".writing")
    return {name: text for name, text in contents(root).items() if not name.endswith(left_out)}


def now(_seconds):
    """No pause."""


def mirror_of(root, url):
    return open_mirror(root, url, pause=now)


def test_a_tree_is_restored_from_its_mirror_alone(tree, url, tmp_path):
    mirror = mirror_of(tree, url)
    assert mirror.is_empty
    assert mirror.sync()
    other = tmp_path / "elsewhere"
    assert mirror_of(other, url).restore() == 5
    assert contents(other) == wanted(tree)


def test_only_what_is_new_is_copied_and_what_is_gone_is_removed(tree, url, tmp_path):
    mirror = mirror_of(tree, url)
    mirror.sync()
    put = []
    original = mirror._store.put
    mirror._store.put = lambda name, content: (put.append(name), original(name, content))
    assert mirror.sync()
    assert put == []
    write(tree / "digits/fc/sgd/8/1/measurements.csv", "step,val/loss\n0,1.0\n10,0.5\n")
    (tree / ".batchscale/checkpoints/8/2.newest.npz").unlink()
    assert mirror.sync()
    assert [name.split("/")[0] for name in put] == ["objects", "tree", "manifest.json"]
    assert mirror_of(tmp_path / "elsewhere", url).restore() == 4
    assert contents(tmp_path / "elsewhere") == wanted(tree)
    assert len(list((tmp_path / "remote" / "objects").rglob("*"))) >= 3


def test_records_lie_there_under_their_own_names_too(tree, url, tmp_path):
    mirror_of(tree, url).sync()
    assert contents(tmp_path / "remote" / "tree") == {k: v for k, v in wanted(tree).items() if ".batchscale" not in k}


def test_an_upload_cut_off_anywhere_leaves_the_last_whole_state(tree, url, tmp_path):
    mirror_of(tree, url).sync()
    before = wanted(tree)
    write(tree / "digits/fc/sgd/8/2/metadata.json", "new")
    write(tree / "digits/fc/sgd/8/2/measurements.csv", "newer")
    for allowed in range(4):  # two objects, two names, then the manifest
        mirror = mirror_of(tree, url)
        original, left = mirror._store._files.pipe_file, [allowed]

        def failing(path, content, original=original, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise PermissionError("cut off")
            original(path, content)

        mirror._store._files.pipe_file = failing
        assert not mirror.sync()
        assert "cut off" in mirror.problem
        other = tmp_path / f"restored-{allowed}"
        mirror_of(other, url).restore()
        assert contents(other) == before
    assert mirror_of(tree, url).sync()


def test_passing_failures_are_tried_again(tree, url):
    mirror = mirror_of(tree, url)
    original, count = mirror._store._files.pipe_file, [0]

    def shaky(path, content):
        count[0] += 1
        if count[0] % 2:
            raise TimeoutError("slow")
        original(path, content)

    mirror._store._files.pipe_file = shaky
    assert mirror.sync()
    assert mirror.problem is None


def test_a_damaged_or_incomplete_mirror_is_refused_and_writes_nothing(tree, url, tmp_path):
    mirror_of(tree, url).sync()
    victim = next(path for path in (tmp_path / "remote" / "objects").rglob("*") if path.is_file())
    victim.write_text("other")
    with pytest.raises(RecordsError, match="damaged"):
        mirror_of(tmp_path / "new", url).restore()
    victim.unlink()
    with pytest.raises(RecordsError, match="missing"):
        mirror_of(tmp_path / "new", url).restore()
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "new.restoring").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"version": 1, "files": 3}',
        b'{"version": 9, "files": {}}',
        manifest_text({"../outside": MirroredFile(1, "0" * 64)}),
        manifest_text({"/etc/x": MirroredFile(1, "0" * 64)}),
        json.dumps({"version": 1, "files": {"a": [1, "../../x"]}}).encode(),
    ],
)
def test_a_hostile_manifest_is_refused(url, tmp_path, content):
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote" / "manifest.json").write_bytes(content)
    with pytest.raises(RecordsError):
        mirror_of(tmp_path / "new", url)


def test_nothing_is_restored_over_something(tree, url, tmp_path):
    mirror_of(tree, url).sync()
    write(tmp_path / "full" / "file", "mine")
    with pytest.raises(RecordsError, match="empty folder"):
        mirror_of(tmp_path / "full", url).restore()
    assert contents(tmp_path / "full") == {"file": "mine"}


def test_what_changes_while_it_is_mirrored_is_there_at_the_end(tree, url, tmp_path):
    mirror = mirror_of(tree, url)
    with Mirroring(mirror) as mirroring:
        for number in range(20):
            write(tree / f"digits/fc/sgd/8/{number + 2}/measurements.csv", str(number))
            mirroring.request()
    assert mirror.problem is None
    mirror_of(tmp_path / "elsewhere", url).restore()
    assert contents(tmp_path / "elsewhere") == wanted(tree)


def test_a_path_without_its_library_is_refused_with_what_to_install(tmp_path):
    with pytest.raises(StorageError, match=r"batchscale\[remote\]"):
        open_mirror(tmp_path, "nosuchscheme://bucket/x")
    assert list(tmp_path.iterdir()) == []
