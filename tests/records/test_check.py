import json
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records_fakes import MemoryFileSystem, make_rows, make_study, make_trial

from batchscale.errors import RecordsError
from batchscale.records.check.texts import check_study_text, check_trial_text
from batchscale.records.check.tree import check_tree
from batchscale.records.metadata.base import OWN_KEY
from batchscale.records.model import STUDY_KEYS, Status
from batchscale.records.rules import RULES
from batchscale.records.tree.open_study import open_study
from batchscale.records.tree.read import read_tree


@pytest.fixture
def study(tmp_path):
    """The folder of a sound study of three trials, without the checksums of their measurements."""
    with open_study(tmp_path, make_study()) as writer:
        for trial_id in (1, 2, 3):
            writer.commit(make_trial(trial_id), make_rows(trial_id, [0, 10, 20]))
            edit(writer.folder / str(trial_id) / "metadata.json", batchscale={"seed": trial_id})
        return writer.folder


def found(root):
    return [(str(v.path.relative_to(root)), v.line, v.rule) for v in check_tree(root)]


def edit(path, **keys):
    """Change keys on purpose: without the checksum of the file, as the message about a changed file advises."""
    data = json.loads(path.read_text())
    data.get("batchscale", {}).pop("metadata_sha256", None)
    data.update(keys)
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not None}, indent=2))


def csv(text):
    return lambda study: (study / "1" / "measurements.csv").write_bytes(text)


def trial(**keys):
    return lambda study: edit(study / "1" / "metadata.json", **keys)


def whole(**keys):
    return lambda study: edit(study / "study.json", **keys)


HEAD = b"step,val/error,train/loss\n"
CSV, META, STUDY = "1/measurements.csv", "1/metadata.json", "study.json"
VIOLATIONS = [
    (csv(HEAD + b"0,1,1\n10,1,1\n10,2,2\n20,1,1\n"), CSV, 4, "duplicate-step"),
    (csv(HEAD + b"0,1,1\n10,1,1\n5,2,2\n20,1,1\n"), CSV, 4, "step-order"),
    (csv(HEAD + b"0,1,1\n10,x,1\n"), CSV, 3, "non-numeric"),
    (csv(HEAD + b"0,1,1\n10,1_0,1\n"), CSV, 3, "non-numeric"),
    (csv(HEAD + b"0,1,1\n10,1\n20,1,1\n"), CSV, 3, "cell-count"),
    (csv(HEAD + b"0,1,1\n10,1,1,1\n20,1,1\n"), CSV, 3, "cell-count"),
    (csv(HEAD + b"0,1,1\n1e1,1,1\n"), CSV, 3, "bad-step"),
    (csv(HEAD + b"-1,1,1\n"), CSV, 2, "bad-step"),
    (csv(HEAD + b"0,1,1\n\n20,1,1\n"), CSV, 3, "bad-step"),
    (csv(HEAD + b"0,1,1\n10,1,0."), CSV, 3, "torn-line"),
    (csv(HEAD + b"0,1,1\n10,\xff,0\n"), CSV, 3, "not-utf8"),
    (csv(HEAD + b"0,1,1\n" + b"\0" * 40 + b"\n"), CSV, 3, "bad-step"),
    (csv(b"\xef\xbb\xbf" + HEAD + b"0,1,1\n"), CSV, 1, "byte-order-mark"),
    (csv(HEAD), CSV, None, "no-measurements"),
    (csv(b""), CSV, 1, "missing-column"),
    (csv(b"val/error,step\n1,1\n"), CSV, 1, "missing-column"),
    (csv(b"step,val/error\n1,1\n"), CSV, 1, "missing-column"),
    (csv(b"step,val/error,val/error\n1,1,1\n"), CSV, 1, "column-name"),
    (csv(b"step,trial_id\n1,1\n"), CSV, 1, "column-name"),
    (csv(HEAD + b"0,1,1\n10," + b"1" * 2**21 + b",1\n"), CSV, 3, "long-line"),
    (trial(status="DONE"), META, 8, "unknown-status"),
    (trial(status=["COMPLETE"]), META, 8, "unknown-status"),
    (trial(trial_id=2), META, 10, "trial-id-disagrees"),
    (trial(steps=-1), META, 9, "bad-value"),
    (trial(steps=19), META, 9, "too-few-steps"),
    (trial(steps=None), META, 1, "missing-key"),
    (trial(parameters=[]), META, 5, "bad-value"),
    (trial(parameters={"learning_rate": 11.0}), META, 6, "outside-space"),
    (trial(parameters={"learning_rate": "x"}), META, 6, "bad-parameter"),
    (trial(parameters={"learning_rate": 10**400}), META, 6, "bad-parameter"),
    (trial(parameters={"learning_rate": 1.0, "steps": 1.0}), META, 7, "bad-parameter"),
    (trial(parameters={}), META, 5, "missing-parameter"),
    (lambda s: (s / META).write_text("{"), META, 1, "bad-json"),
    (lambda s: (s / META).write_text("[]"), META, 1, "bad-json"),
    (lambda s: (s / META).write_text('{"a":\nNaN}'), META, 1, "bad-json"),
    (lambda s: (s / META).write_bytes(b'{\n"\xff": 1}'), META, 2, "not-utf8"),
    (lambda s: (s / META).write_text("[" * 100_000), META, 1, "bad-json"),
    (lambda s: (s / META).write_bytes(b"\xef\xbb\xbf" + (s / META).read_bytes()), META, 1, "byte-order-mark"),
    (lambda s: (s / META).unlink(), META, None, "missing-file"),
    (lambda s: (s / CSV).unlink(), CSV, None, "missing-file"),
    (lambda s: (s / "study.json").unlink(), STUDY, None, "missing-file"),
    (whole(batch_size=9), STUDY, 2, "batch-size-disagrees"),
    (whole(batch_size=0), STUDY, 2, "bad-value"),
    (whole(model="other"), STUDY, 8, "workload-disagrees"),
    (whole(train_steps="20"), STUDY, 18, "bad-value"),
    (whole(early_stopping=1), STUDY, 7, "bad-value"),
    (whole(optimizer=None), STUDY, 1, "missing-key"),
    (whole(parameter_configs={"learning_rate": {"type": "DOUBLE"}}), STUDY, 11, "bad-space"),
    (lambda s: (s / "notes").mkdir(), "notes", None, "folder-name"),
    (lambda s: (s / "007").mkdir(), "007", None, "folder-name"),
    (lambda s: (s / ".hidden").mkdir(), ".hidden", None, "folder-name"),
    (lambda s: (s / "4").write_text(""), "4", None, "not-a-folder"),
    (lambda s: (s.parent / "16").write_text(""), "../16", None, "not-a-folder"),
    (lambda s: (s.parent / "tmp").mkdir(), "../tmp", None, "folder-name"),
    (lambda s: (s.parent / "16").mkdir(), "../16/study.json", None, "missing-file"),
]


def test_a_sound_study_has_no_violation(study, tmp_path):
    assert check_tree(tmp_path) == []


@pytest.mark.parametrize(
    ("damage", "where", "line", "rule"), VIOLATIONS, ids=lambda value: value if value in RULES else ""
)
def test_each_violation_is_named_with_its_file_and_line(study, tmp_path, damage, where, line, rule):
    damage(study)
    path = (study / where).absolute() if not where.startswith("../") else study.parent / where.removeprefix("../")
    assert (str(path.relative_to(tmp_path)), line, rule) in found(tmp_path)


def test_a_violation_is_the_only_one_when_it_is_the_only_one(study, tmp_path):
    trial(status="DONE")(study)
    csv(HEAD + b"0,1,1\n10,x,1\n20,1,1\n")(study)
    base = "groups/tiny/net/sgd/8/1"
    assert found(tmp_path) == [
        (f"{base}/measurements.csv", 3, "non-numeric"),
        (f"{base}/metadata.json", 8, "unknown-status"),
    ]


def test_all_violations_are_listed_not_only_the_first(study, tmp_path):
    csv(HEAD + b"0,x,y\n0,1,1\n0,1,1\n3,1\n")(study)
    trial(status="DONE", trial_id=9, parameters={"learning_rate": 99})(study)
    whole(batch_size=4, dataset="other")(study)
    rules = [rule for _, _, rule in found(tmp_path)]
    of_measurements = ["non-numeric", "non-numeric", "duplicate-step", "cell-count"]
    of_metadata = ["unknown-status", "trial-id-disagrees", "outside-space"]
    assert sorted(rules) == sorted([*of_measurements, *of_metadata, "batch-size-disagrees", "workload-disagrees"])


@pytest.mark.parametrize(
    "legal",
    [
        csv(HEAD + b"0,nan,inf\n10,,-inf\n20,NaN,1e-5\n"),
        csv(HEAD.replace(b"\n", b"\r\n") + b"0,1,1\r\n20,1,1\r\n"),
        trial(_internal_study_name="x", _internal_trial_id=4),
        trial(steps=500),
        trial(status="INCOMPLETE", steps=3),
        trial(parameters={"learning_rate": 10.000000000000002, "fixed": 3.0}),
        lambda s: (trial(steps=5)(s), whole(early_stopping=True)(s)),
        lambda s: (trial(steps=5)(s), whole(train_steps=0)(s)),
        lambda s: (s / "README").write_text("x"),
        lambda s: (s.parents[4] / "README.md").write_text("x"),
    ],
)
def test_what_the_published_format_allows_is_no_violation(study, tmp_path, legal):
    legal(study)
    assert check_tree(tmp_path) == []


def test_a_trial_is_checked_against_the_space_of_its_own_search(study, tmp_path):
    old = json.loads((study / "study.json").read_text())["parameter_configs"]
    new = {"learning_rate": {**old["learning_rate"], "min_value": 10.0, "max_value": 100.0}}
    searches = [{"space": old, "first_trial_id": 1}, {"space": new, "first_trial_id": 3}]
    whole(parameter_configs=new, batchscale={"searches": searches})(study)
    for trial_id, search, rate in ((1, 1, 0.1), (2, 1, 0.1), (3, 2, 50.0)):
        edit(study / str(trial_id) / "metadata.json", batchscale={"search": search}, parameters={"learning_rate": rate})
    assert check_tree(tmp_path) == []
    edit(study / "3" / "metadata.json", batchscale={"search": 1})
    assert [rule for _, _, rule in found(tmp_path)] == ["outside-space"]


def test_what_a_writer_is_working_on_is_no_violation(tmp_path):
    with open_study(tmp_path, make_study()) as writer:
        writer.append(1, make_rows(1, [0]))
        (writer.working_folder / "new-7").mkdir()
        assert check_tree(tmp_path) == []


def test_links_are_followed_inside_the_tree_only(study, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "metadata.json").write_text("secret")
    (study / "5").symlink_to(outside)
    (study / "1" / "metadata.json").unlink()
    (study / "1" / "metadata.json").symlink_to(outside / "metadata.json")
    (study / "2" / "measurements.csv").unlink()
    (study / "2" / "measurements.csv").symlink_to(study / "3" / "measurements.csv")
    violations = check_tree(tmp_path)
    assert [(v.path, v.rule) for v in violations] == [
        (study / "1" / "metadata.json", "outside-link"),
        (study / "5", "outside-link"),
    ]
    with pytest.raises(RecordsError, match="symbolic link"):
        read_tree(tmp_path)


def test_a_link_in_a_circle_is_refused(study, tmp_path):
    (tmp_path / "groups" / "again").symlink_to(tmp_path)
    assert [v.rule for v in check_tree(tmp_path)] == ["outside-link"]


def test_a_pipe_where_a_file_should_be_does_not_make_us_wait(study, tmp_path):
    (study / "1" / "measurements.csv").unlink()
    os.mkfifo(study / "1" / "measurements.csv")
    assert [rule for _, _, rule in found(tmp_path)] == ["not-a-file"]


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.write_text(""), lambda p: p.mkdir()])
def test_nothing_a_file_and_an_empty_directory_are_refused(tmp_path, make):
    make(tmp_path / "x")
    for reader in (check_tree, read_tree):
        with pytest.raises(RecordsError, match="records tree"):
            reader(tmp_path / "x")


def test_files_larger_than_any_record_are_refused_unread(study, tmp_path):
    with (study / "1" / "metadata.json").open("wb") as file:
        file.truncate(200 * 2**20)  # a hole: no disk space is taken
    assert [rule for _, _, rule in found(tmp_path)] == ["too-large"]
    notices = []
    assert read_tree(tmp_path, notices.append).trials["trial_id"].to_list() == [2, 3]
    assert len(notices) == 1


def tree_in_memory():
    fs, root = MemoryFileSystem(), Path("/tree")
    with open_study(root, make_study(), fs=fs) as writer:
        writer.commit(make_trial(1), make_rows(1, [0, 10, 20]))
        writer.commit(make_trial(2, 10, Status.INFEASIBLE), make_rows(2, [0, 10]))
    return fs, root


@pytest.mark.parametrize("name", ["study.json", "1/metadata.json", "1/measurements.csv"])
def test_a_file_cut_at_any_byte_is_found_and_costs_only_its_own_trial(name):
    fs, root = tree_in_memory()
    path = root / "groups/tiny/net/sgd/8" / name
    key = fs._find(path)
    text = fs.data[key]
    whole_rows = read_tree(root, pytest.fail, fs).measurements.collect().filter(trial_id=1).rows()
    for size in range(len(text)):
        fs.data[key] = text[:size]
        if name.endswith(".json") and text[:size].rstrip() == text.rstrip():
            continue  # only the last line break is gone: the same JSON
        violations = check_tree(root, fs)
        at_end = name.endswith(".csv") and text[size - 1 : size] == b"\n"
        assert at_end or path in {v.path for v in violations}
        assert {v.path for v in violations} <= {path, root}
        notices = []
        if name == "study.json":
            with pytest.raises(RecordsError):
                read_tree(root, notices.append, fs)
            continue
        records = read_tree(root, notices.append, fs)
        assert 2 in records.trials["trial_id"].to_list()
        rows = records.measurements.collect().filter(trial_id=1).rows()
        assert rows == (whole_rows[: max(0, text[:size].count(b"\n") - 1)] if name.endswith(".csv") else [])
        assert at_end or notices


def test_a_duplicated_file_keeps_the_first_copy_of_its_rows():
    fs, root = tree_in_memory()
    key = fs._find(root / "groups/tiny/net/sgd/8/1/measurements.csv")
    wanted = read_tree(root, pytest.fail, fs).measurements.collect()
    fs.data[key] += fs.data[key]
    assert read_tree(root, lambda _: None, fs).measurements.collect().equals(wanted)
    assert {v.rule for v in check_tree(root, fs)} == {
        "bad-step",
        "non-numeric",
        "duplicate-step",
        "changed-measurements",
    }


def test_random_damage_never_raises_anything_but_our_own_error():
    random = Random(3)
    fs, root = tree_in_memory()
    keys = {path: fs._find(Path(path)) for path in fs.files() if "/.batchscale/" not in path}
    sound = {key: fs.data[key] for key in keys.values()}
    for _ in range(150):
        fs.data.update(sound)
        key = random.choice(sorted(keys.values()))
        text = bytearray(sound[key])
        for _ in range(random.randint(1, 4)):
            text[random.randrange(len(text))] = random.choice(b'\0\n\r",{}[]x9-.\xff\xef')
        fs.data[key] = bytes(text)
        check_tree(root, fs)
        try:
            read_tree(root, lambda _: None, fs).measurements.collect()
        except RecordsError:
            assert key == keys["/tree/groups/tiny/net/sgd/8/study.json"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
odd_study = st.fixed_dictionaries({}, optional=dict.fromkeys((*STUDY_KEYS, OWN_KEY), json_values))
odd_trial = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("parameters", "status", "steps", "trial_id", "batchscale"), json_values)
)


@settings(max_examples=150, deadline=None)
@given(study=st.binary(max_size=60) | odd_study.map(json.dumps).map(str.encode), data=st.data())
def test_arbitrary_text_gives_faults_of_known_rules(study, data):
    facts, faults = check_study_text(study, make_study().workload, 8)
    text = data.draw(st.binary(max_size=60) | odd_trial.map(json.dumps).map(str.encode))
    _, more = check_trial_text(text, 1, facts)
    assert faults or more
    assert {fault.rule for fault in faults + more} <= set(RULES)
