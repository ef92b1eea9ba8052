"""Every fact of a tree of format 1 is read, under the names that it has today."""

import json
from pathlib import Path

import pytest

from batchscale.records.check.tree import check_tree
from batchscale.records.metadata.columns import METADATA
from batchscale.records.tree.read import read_tree

STORED = Path(__file__).parent / "format_1"


def test_the_tree_is_sound_and_every_fact_of_it_is_read():
    assert check_tree(STORED / "finished") == []
    records = read_tree(STORED / "finished", pytest.fail)
    studies = {row["batch_size"]: row[METADATA] for row in records.studies.to_dicts()}
    for size, facts in studies.items():
        own = json.loads(next((STORED / "finished").glob(f"*/*/*/{size}/study.json")).read_text())["batchscale"]
        assert facts["stop_rule"] == own["stop"] == "race"
        assert (facts["goal"], facts["seed"], facts["budgets"]) == (own["goal"], own["seed"], own["budgets"])
        assert [json.loads(space) for space in facts["spaces"]] == [search["space"] for search in own["searches"]]
        assert facts["goal_reached"] is own["verdict"]["goal_reached"] is True
    assert sorted(len(facts["spaces"]) for facts in studies.values()) == [1, 2]
    for row in records.trials.to_dicts():
        folder = STORED / "finished" / row["dataset"] / row["model"] / row["optimizer"] / str(row["batch_size"])
        own = json.loads((folder / str(row["trial_id"]) / "metadata.json").read_text())["batchscale"]
        facts = row[METADATA]
        assert [facts[key] for key in ("seed", "search", "point", "stop_reason", "reached_at", "best")] == [
            own[key] for key in ("seed", "search", "point", "stop_reason", "reached_at", "best")
        ]
        assert facts["total_s"] == own["timing"]["seconds"]
        assert facts["device_kind"] == own["hardware"]
        assert facts["measurements_sha256"] is None
