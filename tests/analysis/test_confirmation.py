"""Confirmed points: the median over new seeds in place of the luckiest trial of a search."""

import json
import math
from statistics import median

import numpy as np
import pytest

from batchscale.analysis.confirmation import Confirmation, confirmed_intervals
from batchscale.analysis.curve_analysis import AnalysisOptions, analyze
from batchscale.records.tree.read import read_tree
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

NAME, GOAL = WorkloadName("data", "model", "sgd"), Goal.parse("val/error < 0.5")


def write_trial(folder, trial_id: int, reached_at: int | None, confirms: int | None = None) -> None:
    """A trial measured at every step that reaches the goal there, or ends at step 90 without it."""
    own = {"format_version": 2, "seed": trial_id, **({} if confirms is None else {"confirms": confirms})}
    path = folder / str(trial_id)
    path.mkdir(parents=True)
    last = reached_at or 90
    metadata = {
        "parameters": {"learning_rate": (confirms or trial_id) / 10},
        "status": "COMPLETE",
        "steps": last,
        "trial_id": trial_id,
        "batchscale": own,
    }
    (path / "metadata.json").write_text(json.dumps(metadata))
    rows = [f"{step},{0.1 if step == reached_at else 1.0}" for step in range(last + 1)]
    (path / "measurements.csv").write_text("\n".join(["step,val/error", *rows]) + "\n")


def write_study(root, batch_size: int, searched: list[int | None], again: dict[int, list[int | None]]) -> None:
    folder = root / "data" / "model" / "sgd" / str(batch_size)
    folder.mkdir(parents=True)
    space = {"learning_rate": {"type": "DOUBLE", "min_value": 0.01, "max_value": 10.0, "scale": "LOG_SCALE"}}
    study = {
        "dataset": "data", "model": "model", "optimizer": "sgd", "batch_size": batch_size, "train_steps": 90,
        "early_stopping": True, "parameter_configs": space,
    }  # fmt: skip
    (folder / "study.json").write_text(json.dumps(study))
    for trial_id, reached_at in enumerate(searched, 1):
        write_trial(folder, trial_id, reached_at)
    trial_id = len(searched)
    for confirms, steps in again.items():
        for reached_at in steps:
            trial_id += 1
            write_trial(folder, trial_id, reached_at, confirms)


@pytest.fixture
def root(tmp_path):
    write_study(tmp_path, 4, [40, 44, 60, None], {1: [70, 66, 80, None, 75], 2: [50, 48, 53, 47, 60]})
    write_study(tmp_path, 16, [12, 15, 18, None], {1: [14, 13, 15, 16, 11], 2: [20, 20, 20, 20, 20]})
    return tmp_path


def test_the_point_is_the_least_median_over_new_seeds(root):
    curve = analyze(read_tree(root), NAME, GOAL).curve
    assert curve["steps"].to_list() == [median([50, 48, 53, 47, 60]), median([14, 13, 15, 16, 11])]
    assert curve["trial_id"].to_list() == [2, 1]
    assert curve["learning_rate"].to_list() == [0.2, 0.1]
    assert curve["examples"].to_list() == [4 * 50, 16 * 14]
    assert curve["search_steps"].to_list() == [40, 12]
    assert curve["seeds"].to_list() == [5, 5]
    assert all(low < steps < high for steps, low, high in curve.select("steps", "steps_low", "steps_high").rows())
    assert curve["trials"].to_list() == [4, 4]  # confirmations are no trials of the search
    assert not curve["still_moves"].any()


def test_the_search_alone_can_still_be_read(root):
    curve = analyze(read_tree(root), NAME, GOAL, AnalysisOptions(confirmed=False)).curve
    assert curve["steps"].to_list() == curve["search_steps"].to_list() == [40, 12]
    assert curve["trial_id"].to_list() == [1, 1]
    assert curve["seeds"].to_list() == [None, None]


def test_one_size_that_is_not_confirmed_leaves_all_points_to_the_search(root):
    write_study(root, 64, [5, 6, 7], {1: [9, None, None, None, None]})
    answer = analyze(read_tree(root), NAME, GOAL)
    assert answer.curve["steps"].to_list() == [40, 12, 5]
    assert any("did not confirm batch size 64" in doubt for doubt in answer.doubts)


def test_two_seeds_are_too_few(tmp_path):
    write_study(tmp_path, 4, [40, 44], {1: [70, 66]})
    write_study(tmp_path, 16, [12, 15], {1: [14, 13]})
    assert analyze(read_tree(tmp_path), NAME, GOAL).curve["steps"].to_list() == [40, 12]


def test_intervals_of_medians_cover_the_truth():
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(400):
        truths = rng.uniform(2, 8, 6)
        draws = [Confirmation(i, 1, np.sort(rng.normal(truth, 0.2, 5))) for i, truth in enumerate(truths)]
        ends = confirmed_intervals(draws, 0.9)
        inside += [low <= math.exp(truth) <= high for truth, (low, high) in zip(truths, ends, strict=True)]
    assert 0.87 < np.mean(inside) < 0.94


def test_charts_of_several_curves_show_the_confirmed_one(root):
    from batchscale.figures.series import CurvePanel, Series, series_frame

    def steps(first_trials=None):
        panel = CurvePanel("panel", (Series(NAME, GOAL, "mine", first_trials),))
        return dict(series_frame(read_tree(root), [panel]).select("batch_size", "steps").rows())

    assert steps() == {4: 50, 16: 14}
    assert steps(first_trials=4) == {4: 40, 16: 12}
