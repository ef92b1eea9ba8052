"""Our own metadata is read as it was written; older versions are upgraded, newer ones and wrong kinds refused."""

import json
from dataclasses import dataclass

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchscale.errors import RecordsError
from batchscale.records.metadata.base import FORMAT_VERSION, NewerFormatError, Whole, parse_metadata
from batchscale.records.metadata.columns import (
    STUDY_METADATA,
    TRIAL_METADATA,
    columns_of,
    study_metadata_row,
    trial_metadata_row,
)
from batchscale.records.metadata.study import EdgeEnd, SearchMetadata, StudyMetadata, StudyResult, TrainerMetadata
from batchscale.records.metadata.trial import Hardware, Timing, TrialMetadata
from batchscale.search.edge_guard import Side
from batchscale.spec.space import ParameterConfig, ParameterType, Scale, SearchSpace

SPACE = SearchSpace((ParameterConfig("learning_rate", ParameterType.DOUBLE, 0.01, 10.0, Scale.LOG),))

STUDY = StudyMetadata(
    code_version="1.2",
    spec_hash="0123456789abcdef",
    goal="val/loss < 0.1",
    stop_rule="race",
    trials=5,
    finishers=3,
    seed=7,
    fixed={"momentum": 0.9},
    evaluation={"every": 10},
    num_train_examples=55_000,
    budgets=(100, 200),
    population=4,
    searches=(
        SearchMetadata(SPACE, ((1, 0), (12, 5))),
        SearchMetadata(SPACE, ((6, 0),), "the best trial lies at the edge"),
    ),
    result=StudyResult(True, (EdgeEnd("learning_rate", Side.HIGH),), short=True),
    trainer=TrainerMetadata("jax", "0.9"),
    experiment="[experiment]\n",
)
TRIAL = TrialMetadata(
    seed=1,
    search=2,
    point=0,
    stop_reason="goal",
    reached_at=10,
    diverged_at=None,
    best=0.25,
    failure="killed",
    log_lines=("a", "b"),
    timing=Timing(compile_s=0.5, num_steps=3, step_time_s=0.25, total_s=2.0),
    hardware=Hardware("Fast Processor 9", "cpu", 2, 1, "box"),
    measurements_sha256="0" * 64,
)


def through_text(data: object) -> object:
    return json.loads(json.dumps(data))


def test_what_is_written_is_what_is_read() -> None:
    assert StudyMetadata.from_json(through_text(STUDY.to_json()), "study.json") == STUDY
    assert TrialMetadata.from_json(through_text(TRIAL.to_json()), "metadata.json") == TRIAL
    assert StudyMetadata.from_json(StudyMetadata().to_json(), "study.json") == StudyMetadata()
    assert TrialMetadata.from_json(TrialMetadata().to_json(), "metadata.json") == TrialMetadata()


def test_both_files_say_their_version() -> None:
    assert STUDY.to_json()["format_version"] == TRIAL.to_json()["format_version"] == FORMAT_VERSION


@pytest.mark.parametrize("kind", [StudyMetadata, TrialMetadata])
def test_newer_versions_are_refused_by_name(kind: type[StudyMetadata] | type[TrialMetadata]) -> None:
    with pytest.raises(NewerFormatError, match=r"a/study\.json.*up to 2.*version 99.*install"):
        kind.from_json({"format_version": 99, "anything": "else"}, "a/study.json")


@pytest.mark.parametrize("version", [0, -1, True, "2", None, 1.5])
def test_a_version_is_a_whole_number_from_1(version: object) -> None:
    with pytest.raises(RecordsError, match="format_version from 1"):
        StudyMetadata.from_json({"format_version": version}, "study.json")


def test_unknown_keys_of_the_same_version_are_kept() -> None:
    own = {"format_version": 2, "seed": 3, "colour": {"deep": [1]}}
    for kind in (StudyMetadata, TrialMetadata):
        metadata = kind.from_json(own, "a")
        assert metadata.other == {"colour": {"deep": [1]}}
        assert metadata.to_json() == own


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ({"seed": "7"}, r"s\.json: batchscale\.seed is a whole number.*Found '7'"),
        ({"goal": 1}, r"batchscale\.goal is text"),
        ({"trials": -1}, r"batchscale\.trials is a whole number"),
        ({"num_train_examples": 0}, r"num_train_examples is a whole number of at least 1"),
        ({"budgets": 5}, r"batchscale\.budgets is a list"),
        ({"budgets": [5, "x"]}, r"budgets is a list of whole numbers"),
        ({"fixed": {"momentum": "high"}}, r"fixed has a finite number"),
        ({"finding": []}, r"batchscale\.finding is an object"),
        ({"finding": {"goal_reached": 1}}, r"finding\.goal_reached is true or false"),
        ({"finding": {"at_edge": [{"parameter": "x", "side": "up"}]}}, r"at_edge\[0\]\.side is low or high"),
        ({"searches": [{"space": {}}]}, r"searches\[0\]\.ranges is a list of pairs"),
        ({"searches": [{"space": {"a": {}}, "ranges": [[1, 0]]}]}, r"searches\[0\]\.space is a search space"),
        ({"trainer": {}}, r"trainer\.name is the name"),
    ],
)
def test_wrong_kinds_in_a_study_are_named(own: dict[str, object], named: str) -> None:
    with pytest.raises(RecordsError, match=named):
        StudyMetadata.from_json({"format_version": 2, **own}, "s.json")


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ({"search": 0}, r"m\.json: batchscale\.search is a whole number of at least 1"),
        ({"best": "low"}, r"batchscale\.best is a finite number"),
        ({"best": 10**400}, r"batchscale\.best is a finite number"),
        ({"hardware": "x"}, r"batchscale\.hardware is an object"),
        ({"hardware": {"num_devices": 0}}, r"hardware\.num_devices is a whole number of at least 1"),
        ({"timing": {"total_s": None, "step_time_s": "fast"}}, r"timing\.step_time_s is a finite number"),
        ({"log_lines": [1]}, r"log_lines is a list of texts"),
        ({"measurements_sha256": "abc"}, r"measurements_sha256 has 64 hexadecimal digits"),
    ],
)
def test_wrong_kinds_in_a_trial_are_named(own: dict[str, object], named: str) -> None:
    with pytest.raises(RecordsError, match=named):
        TrialMetadata.from_json({"format_version": 2, **own}, "m.json")


def test_a_study_of_version_1_is_upgraded() -> None:
    old = {
        "format_version": 1,
        "stop": "goal",
        "verdict": {"goal_reached": True, "at_edge": [{"parameter": "learning_rate", "side": "low"}], "short": False},
        "searches": [
            {"space": SPACE.to_json(), "first_trial_id": 1, "reason": ""},
            {"space": SPACE.to_json(), "first_trial_id": 4, "reason": "why", "ranges": [[4, 0], [9, 3]]},
        ],
        "population": None,
    }
    metadata = StudyMetadata.from_json(old, "study.json")
    assert metadata.stop_rule == "goal"
    assert metadata.result == StudyResult(True, (EdgeEnd("learning_rate", Side.LOW),))
    assert [search.ranges for search in metadata.searches] == [((1, 0),), ((4, 0), (9, 3))]
    assert metadata.other == {}
    assert StudyMetadata.from_json({"format_version": 1, "verdict": {}}, "study.json").result is None


def test_a_trial_of_version_1_is_upgraded() -> None:
    old = {"seed": 1, "hardware": "x86_64", "timing": {"seconds": 1.5, "steps": 40.0, "step_time_s": 0.1}}
    metadata = TrialMetadata.from_json(old, "metadata.json")
    assert metadata.hardware == Hardware("x86_64")
    assert metadata.timing == Timing(num_steps=40, step_time_s=0.1, total_s=1.5)
    assert TrialMetadata.from_json({"hardware": ""}, "metadata.json").hardware is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = sorted({*STUDY.to_json(), *TRIAL.to_json(), "stop", "verdict"})


@given(own=st.dictionaries(st.sampled_from(NAMES), json_values) | json_values)
def test_any_json_is_read_or_refused(own: object) -> None:
    for kind in (StudyMetadata, TrialMetadata):
        try:
            metadata = kind.from_json(own, "file")
        except RecordsError:
            continue
        assert kind.from_json(metadata.to_json(), "file") == metadata


def test_the_columns_of_a_trial_are_its_fields_in_order() -> None:
    assert [*TRIAL_METADATA] == [
        "seed", "search", "point", "confirms", "stop_reason", "reached_at", "diverged_at", "best", "failure",
        "log_lines",
        "compile_s", "warm_up_s", "train_s", "evaluation_s", "num_steps", "step_time_s", "examples_per_s", "total_s",
        "device_kind", "platform", "num_devices", "num_hosts", "host", "measurements_sha256",
    ]  # fmt: skip
    row = trial_metadata_row(TRIAL)
    assert row is not None
    assert set(row) == set(TRIAL_METADATA)
    assert set(study_metadata_row(STUDY) or ()) == set(STUDY_METADATA)


def test_a_new_field_is_one_line() -> None:
    @dataclass(frozen=True)
    class Later(TrialMetadata):
        num_restarts: Whole | None = None

    later = parse_metadata(Later, {"format_version": 2, "seed": 3, "num_restarts": 4, "colour": "red"}, "m.json")
    assert (later.seed, later.num_restarts, later.other) == (3, 4, {"colour": "red"})
    assert later.to_json() == {"format_version": 2, "seed": 3, "num_restarts": 4, "colour": "red"}
    assert columns_of(Later)["num_restarts"] == pl.Int64
    assert parse_metadata(Later, {"format_version": 2, "seed": 3}, "m.json").num_restarts is None
    with pytest.raises(
        RecordsError, match=r"m\.json: batchscale\.num_restarts is a whole number of at least 0\. Found 'x'"
    ):
        parse_metadata(Later, {"num_restarts": "x"}, "m.json")
