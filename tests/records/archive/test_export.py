"""What is imported and exported is the same; with hypothesis, for any records."""

import json
import math
import string
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchscale.errors import RecordsError
from batchscale.records.frames import Records
from batchscale.records.read import read_records
from batchscale.records.table.export import export_records
from batchscale.records.table.import_records import import_records
from batchscale.records.tree.read import read_tree

from .conftest import Synthetic, small_members, study_json, table_bytes, write_tar

SIX_DIGITS = st.floats(-1e4, 1e4).map(lambda value: float(f"{value:.6g}"))
CELLS = st.none() | st.floats() | SIX_DIGITS | st.just(-0.0)
NAMES = st.text(string.ascii_letters, min_size=1, max_size=6)
EXTRA = st.dictionaries(
    NAMES.map("x_".__add__), st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False), max_size=2
)


@st.composite
def studies(draw: st.DrawFn) -> dict[str, bytes]:
    """The files of some studies."""
    files: dict[str, bytes] = {}
    for folder in draw(st.sets(st.sampled_from(["d/m/o", "d/m2/o", "g/d/m/o"]), min_size=1)):
        for size in draw(st.sets(st.integers(1, 2**40), min_size=1, max_size=2)):
            extra = draw(EXTRA)
            files[f"{folder}/{size}/study.json"] = study_json(folder, size, **extra)
            for trial_id in draw(st.sets(st.integers(0, 10**15), max_size=3)):
                files |= draw(trials(f"{folder}/{size}/{trial_id}", trial_id))
    return files


@st.composite
def trials(draw: st.DrawFn, folder: str, trial_id: int) -> dict[str, bytes]:
    parameters = draw(
        st.dictionaries(NAMES.map("p_".__add__), st.integers(-(2**60), 2**60) | st.floats(-1e300, 1e300), max_size=3)
    )
    status = draw(st.sampled_from(["COMPLETE", "INCOMPLETE", "INFEASIBLE"]))
    text = {"parameters": parameters, "status": status, "steps": 3, "trial_id": trial_id, **draw(EXTRA)}
    metrics = draw(st.lists(st.sampled_from(["val/a", "val/b", "train/NaN"]), unique=True))
    steps = sorted(draw(st.sets(st.integers(0, 2**53), max_size=3)))
    rows = [[str(step), *(cell(draw(CELLS)) for _ in metrics)] for step in steps]
    lines = [",".join(row) + "\n" for row in [["step", *metrics], *rows]]
    indent = draw(st.sampled_from([None, 2]))
    return {
        f"{folder}/metadata.json": json.dumps(text, indent=indent).encode(),
        f"{folder}/measurements.csv": "".join(lines).encode(),
    }


def cell(value: float | None) -> str:
    return "" if value is None else repr(value)


def numbers(text: bytes) -> list[list[object]]:
    """The cells of a CSV as values that compare equal only if they are the same."""

    def value(cell: str) -> object:
        if cell == "":
            return None
        number = float(cell)
        return "nan" if math.isnan(number) else (number, math.copysign(1, number))

    header, *rows = text.decode().splitlines()
    return [[header], *([value(text) for text in row.split(",")] for row in rows)]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(studies())
def test_import_and_export_give_everything_back(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        members = {f"top/{name}": data for name, data in files.items()}
        import_records(write_tar(place / "x.tar", members), place / "table")
        export_records(place / "table", place / "tree")
        exported = table_bytes(place / "tree")
        assert exported.keys() == files.keys()
        for name, data in files.items():
            if name.endswith(".json"):
                assert exported[name] == data
            else:
                assert numbers(exported[name]) == numbers(data)
        import_records(place / "tree", place / "again")
        one, other = table_bytes(place / "table"), table_bytes(place / "again")
        assert {k: v for k, v in one.items() if k != "manifest.json"} == {
            k: v for k, v in other.items() if k != "manifest.json"
        }


def test_the_synthetic_archive_exports_to_the_bytes_it_was_made_of(tmp_path: Path, synthetic: Synthetic) -> None:
    from synthetic_archive import members

    from .conftest import SCALE

    summary = export_records(synthetic.table, tmp_path / "tree")
    assert (summary.studies, summary.trials) == (454, synthetic.counts.trials.total())
    assert summary.measurements == synthetic.counts.measurements
    found = table_bytes(tmp_path / "tree")
    for name, data in members(SCALE, 0):
        exported = found.pop(name)
        assert exported == data or (name.endswith(".csv") and numbers(exported) == numbers(data)), name
    assert not found


def test_export_writes_only_where_nothing_is(tmp_path: Path) -> None:
    import_records(write_tar(tmp_path / "x.tar", small_members()), tmp_path / "table")
    (tmp_path / "there").mkdir()
    with pytest.raises(RecordsError, match="nothing is yet"):
        export_records(tmp_path / "table", tmp_path / "there")
    with pytest.raises(RecordsError, match="folder that exists"):
        export_records(tmp_path / "table", tmp_path / "no" / "tree")
    with pytest.raises(RecordsError, match="manifest"):
        export_records(tmp_path / "there", tmp_path / "tree")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table", "there", "x.tar"]


def frames_of(records: Records) -> list[object]:
    measurements = [records.measurements_of(name).collect() for name in records.workloads]
    return [
        records.studies.to_dicts(),
        records.trials.select(sorted(records.trials.columns)).to_dicts(),
        [frame.select(sorted(frame.columns)).fill_nan(-1.0).to_dicts() for frame in measurements],
    ]


def test_a_tree_a_table_and_an_archive_give_equal_records(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "x.tar.xz", small_members())
    import_records(archive, tmp_path / "table")
    export_records(tmp_path / "table", tmp_path / "tree")
    expected = frames_of(read_tree(tmp_path / "tree"))
    for place in ("tree", "table", "x.tar.xz"):
        assert frames_of(read_records(tmp_path / place)) == expected


def test_first_trials_and_filters_work_on_a_table(tmp_path: Path) -> None:
    members = small_members()
    members["root/mnist/fc/sgd/8/1/metadata.json"] = members["root/mnist/fc/sgd/8/1/metadata.json"].replace(
        b"COMPLETE", b"INFEASIBLE"
    )
    import_records(write_tar(tmp_path / "x.tar", members), tmp_path / "table")
    records = read_records(tmp_path / "table").filter(dataset="mnist", model="fc", optimizer="sgd", batch_size=8)
    assert records.filter(status="INFEASIBLE").trials["trial_id"].to_list() == [1]
    first = records.first_trials(1)
    assert first.trials["trial_id"].to_list() == [2]
    assert first.measurements.collect()["trial_id"].unique().to_list() == [2]
    assert records.metaparameters == ["learning_rate"]
