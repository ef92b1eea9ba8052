"""Every fact of trees of format 2 is read, and what format 2 brought: studies of scripts, checksums, mirrors."""

import json
import shutil
from pathlib import Path

import pytest
from make_format_2 import SCRIPT, TRAINER

from batchscale.analysis.results import steps_to_result
from batchscale.records.check.tree import check_tree
from batchscale.records.metadata.columns import METADATA
from batchscale.records.mirror import open_mirror
from batchscale.records.tree.read import read_tree
from batchscale.run.preflight import make_checked_plan
from batchscale.run.session import run_plan
from batchscale.run.settings import RunSettings
from batchscale.spec.file import parse_experiment
from batchscale.spec.goal import Goal

STORED = Path(__file__).parent / "format_2"


def run(out: Path, text: str) -> None:
    plan = make_checked_plan(parse_experiment(text, folder=Path.cwd()), None)
    run_plan(plan, out, RunSettings("inline", keep_states_gb=0))


def own_facts(path: Path) -> dict:
    return json.loads(path.read_text())["batchscale"]


def files_of(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.endswith(".lock") and path.name not in ("lock", "status.json")
    }


@pytest.mark.parametrize("name", ["finished", "trainer"])
def test_the_tree_is_sound_and_every_fact_of_it_is_read(name):
    root = STORED / name
    assert check_tree(root) == []
    records = read_tree(root, pytest.fail)
    assert records.studies.height == 2
    for row in records.studies.to_dicts():
        facts, own = row[METADATA], own_facts(next(root.glob(f"*/*/*/{row['batch_size']}/study.json")))
        same = ("stop_rule", "goal", "seed", "budgets", "num_train_examples", "spec_hash", "trials", "finishers")
        assert [facts[key] for key in same] == [own.get(key) for key in same]
        assert [json.loads(space) for space in facts["spaces"]] == [search["space"] for search in own["searches"]]
        assert facts["goal_reached"] is own["finding"]["goal_reached"] is True
    assert records.trials.height == len(list(root.glob("*/*/*/*/*/metadata.json")))
    for row in records.trials.to_dicts():
        folder = root / row["dataset"] / row["model"] / row["optimizer"] / str(row["batch_size"])
        facts, own = row[METADATA], own_facts(folder / str(row["trial_id"]) / "metadata.json")
        same = ("seed", "search", "point", "stop_reason", "reached_at", "best", "measurements_sha256", "failure")
        assert [facts[key] for key in same] == [own.get(key) for key in same]
        assert facts["total_s"] == own["timing"]["total_s"]
        assert facts["device_kind"] == own.get("hardware", {}).get("device_kind")


def test_a_script_that_failed_is_read_with_its_words():
    trials = read_tree(STORED / "trainer").trials.to_dicts()
    (failed,) = (row for row in trials if row["status"] == "INCOMPLETE")
    assert (failed["batch_size"], failed["trial_id"]) == (32, 2)
    assert failed[METADATA]["failure"].startswith("Tried 4 times. The script exited with code 1")
    curve = steps_to_result(read_tree(STORED / "trainer"), Goal.parse("val/error < 0.2"))
    assert dict(curve.select("batch_size", "steps").rows()) == {8: 10, 32: 10}


def test_the_study_of_a_script_is_finished_and_asks_for_nothing(tmp_path, monkeypatch):
    root = Path(shutil.copytree(STORED / "trainer", tmp_path / "trainer"))
    before = files_of(root)
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    run(root, TRAINER)
    assert files_of(root) == before


def test_the_mirror_gives_the_tree_back(tmp_path):
    remote = Path(shutil.copytree(STORED / "mirror", tmp_path / "mirror"))
    open_mirror(tmp_path / "restored", f"file://{remote}").restore()
    restored, stored = files_of(tmp_path / "restored"), files_of(STORED / "trainer")
    assert restored == stored
    assert check_tree(tmp_path / "restored") == []
