"""Confirmation: the best trials of a study are trained again with new seeds."""

import json

import pytest
from study_fakes import fake_experiment, read_studies, read_values, run_fake

from batchscale.analysis.outcomes import trial_outcomes
from batchscale.errors import RunError
from batchscale.records.check.tree import check_tree
from batchscale.records.tree.read import read_tree
from batchscale.spec.experiment import SearchPlan, StopRule
from batchscale.spec.file import parse_experiment
from batchscale.study.identity import spec_hash


def confirmations(root, batch_size: int = 1) -> dict[int, list[tuple[int, dict]]]:
    """The confirming trials by the trial that they confirm."""
    trials: dict[int, list[tuple[int, dict]]] = {}
    for (study, trial_id), trial in sorted(read_values(root).items()):
        if study.endswith(f"/{batch_size}") and "confirms" in trial["own"]:
            trials.setdefault(trial["own"]["confirms"], []).append((trial_id, trial))
    return trials


@pytest.mark.parametrize("rule", list(StopRule))
def test_the_best_trials_are_trained_again_with_new_seeds(tmp_path, rule):
    run_fake(tmp_path, rule=rule, confirm=3, confirm_best=2, finishers=2)
    values = read_values(tmp_path)
    for size in (1, 8):
        study = f"fake/model/sgd/{size}"
        searched = {n: t for (s, n), t in values.items() if s == study and "confirms" not in t["own"]}
        reached = sorted((t["own"]["reached_at"], n) for n, t in searched.items() if "reached_at" in t["own"])
        confirming = confirmations(tmp_path, size)
        assert sorted(confirming) == sorted(n for _, n in reached[:2])
        for trial_id, trials in confirming.items():
            assert len(trials) == 3
            assert all(t["parameters"] == searched[trial_id]["parameters"] for _, t in trials)
            seeds = {t["own"]["seed"] for _, t in trials}
            assert len(seeds) == 3
            assert not seeds & {t["own"]["seed"] for t in searched.values()}
    assert not check_tree(tmp_path)


def test_a_confirmation_is_no_part_of_the_search(tmp_path):
    run_fake(tmp_path / "with", confirm=3, confirm_best=2)
    run_fake(tmp_path / "without")
    goal = fake_experiment().goal
    with_, without = (trial_outcomes(read_tree(tmp_path / name), goal) for name in ("with", "without"))
    assert with_.equals(without)
    spaces = [len(row["spaces"]) for row in read_tree(tmp_path / "with").studies["facts"]]
    assert spaces == [1, 1]


def test_a_finished_run_can_be_confirmed_later_and_with_more_seeds(tmp_path):
    run_fake(tmp_path / "grown")
    run_fake(tmp_path / "grown", confirm=1)
    run_fake(tmp_path / "grown", confirm=3)
    run_fake(tmp_path / "once", confirm=3)
    assert read_values(tmp_path / "grown") == read_values(tmp_path / "once")
    with pytest.raises(RunError, match="confirm: 3 recorded, 2 requested; it may only grow"):
        run_fake(tmp_path / "once", confirm=2)


def test_more_trials_confirm_a_new_winner_as_well(tmp_path):
    run_fake(tmp_path, trials=3, confirm=2)
    first = set(confirmations(tmp_path))
    run_fake(tmp_path, trials=40, confirm=2)
    best = min(
        (t["own"]["reached_at"], n)
        for (s, n), t in read_values(tmp_path).items()
        if s.endswith("/1") and "reached_at" in t["own"] and "confirms" not in t["own"]
    )
    assert best[1] not in first  # the larger search found a better trial
    assert set(confirmations(tmp_path)) == first | {best[1]}
    searches = read_studies(tmp_path)[1]["batchscale"]["searches"]
    assert [search.get("confirms") for search in searches] == [None, [*first], [best[1]]]


def test_a_goal_that_no_trial_reached_has_nothing_to_confirm(tmp_path):
    run_fake(tmp_path, goal=fake_experiment().goal.__class__.parse("val/error < 0.000001"), confirm=2)
    assert confirmations(tmp_path) == {}


def test_records_without_confirmation_stay_as_they_were(tmp_path):
    run_fake(tmp_path)
    texts = [path.read_text() for path in tmp_path.rglob("*.json") if path.name in ("study.json", "metadata.json")]
    assert texts
    assert not any("confirm" in json.dumps(json.loads(text).get("batchscale", {})) for text in texts)


def test_asking_for_a_confirmation_makes_no_other_experiment():
    assert spec_hash(fake_experiment()) == spec_hash(fake_experiment(confirm=5, confirm_best=3))


def test_searches_after_an_edge_are_all_confirmed_from_their_own_spaces(tmp_path):
    run_fake(tmp_path, search=SearchPlan(repeats=2), trials=12, confirm=2, confirm_best=6)
    assert not check_tree(tmp_path)


def test_the_experiment_file_has_both_keys():
    text = 'workload = "digits/fc_64/sgd"\ngoal = "val/classification_error < 0.05"\nconfirm = 5\nconfirm_best = 3\n'
    experiment = parse_experiment(text)
    assert (experiment.confirm, experiment.confirm_best) == (5, 3)
