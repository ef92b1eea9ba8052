"""Whole runs on the fake engine: the same records whatever happens on the way."""

import contextlib
import json
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from fake_engine import divergence_step, error_at
from study_fakes import FAKE_ENGINE, fake_experiment, fake_facts, fake_space, read_studies, read_values, run_fake

from batchscale.analysis.curve_analysis import analyze
from batchscale.errors import BatchscaleError, RunError, StorageError, StudyLockedError
from batchscale.figures.kind import FigureRequest
from batchscale.figures.kinds import find_kind
from batchscale.records.tree.read import read_tree
from batchscale.records.tree.writer import StudyWriter
from batchscale.run import disk
from batchscale.run.loop import RunResult
from batchscale.run.session import RunSettings, run_plan
from batchscale.run.signals import StopFlag
from batchscale.run.status import read_status
from batchscale.search.edge_guard import DEFAULT_MARGIN
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.durations import Budget, EvaluationPlan, Unit
from batchscale.spec.experiment import SearchPlan, StopRule
from batchscale.spec.plan import make_plan

WIDE = fake_space(0.001, 30.0)  # a quarter of it diverges
STOPS = list(StopRule)
AGAIN = SearchPlan(repeats=2, edge_margin=0.3)  # six trials lie far apart


def steps_to_result(root: Path) -> dict[int, int | None]:
    """The fewest steps at which a recorded row of a COMPLETE trial reaches the goal, by batch size."""
    best: dict[int, int | None] = {}
    for (study, _), trial in read_values(root).items():
        size = int(study.rpartition("/")[2])
        best.setdefault(size, None)
        if trial["status"] != "COMPLETE":
            continue
        for line in str(trial["rows"]).splitlines()[1:]:
            step, value = line.split(",")[:2]
            if float(value) < 0.2 and (best[size] is None or int(step) < best[size]):
                best[size] = int(step)
    return best


@pytest.mark.parametrize("stop", STOPS)
def test_every_search_has_its_non_divergent_trials_and_the_rest_are_infeasible(tmp_path, stop):
    outcome = run_fake(tmp_path, space=WIDE, rule=stop)
    assert outcome.result is RunResult.FINISHED
    for size in (1, 8):
        trials = [t for (study, _), t in read_values(tmp_path).items() if study.endswith(f"/{size}")]
        complete = [t for t in trials if t["status"] == "COMPLETE"]
        assert len(complete) == 6
        assert [t["trial_id"] for t in trials] != []
        for trial in trials:
            diverged = divergence_step(trial["parameters"])
            if trial["status"] == "INFEASIBLE":
                assert trial["steps"] == diverged
            else:
                assert diverged is None or diverged > trial["steps"]


def test_the_same_seed_gives_identical_records_on_every_runner(tmp_path):
    run_fake(tmp_path / "a", "inline", space=WIDE)
    run_fake(tmp_path / "b", "inline", space=WIDE)
    run_fake(tmp_path / "c", "local", space=WIDE, options={"population": 3})
    assert read_values(tmp_path / "a") == read_values(tmp_path / "b") == read_values(tmp_path / "c")
    run_fake(tmp_path / "d", "inline", space=WIDE, seed=1)
    assert read_values(tmp_path / "d") != read_values(tmp_path / "a")


def test_the_first_job_of_a_study_keeps_no_worker_waiting(tmp_path):
    (tmp_path / "meeting").mkdir()
    options = {"meeting": tmp_path / "meeting"}
    outcome = run_fake(tmp_path / "run", "local", options=options, batch_sizes=BatchSizes((8,)))
    assert outcome.result is RunResult.FINISHED
    assert not outcome.status.failures


def test_race_gives_the_steps_to_result_of_goal_and_budget_with_fewer_steps(tmp_path):
    steps = {}
    for stop in STOPS:
        run_fake(tmp_path / stop, rule=stop)
        steps[stop] = sum(t["steps"] for t in read_values(tmp_path / stop).values())
    assert (
        steps_to_result(tmp_path / "race") == steps_to_result(tmp_path / "goal") == steps_to_result(tmp_path / "budget")
    )
    assert None not in steps_to_result(tmp_path / "race").values()
    assert steps[StopRule.RACE] < steps[StopRule.GOAL] < steps[StopRule.BUDGET]


def test_study_files_say_how_the_study_was_run(tmp_path):
    run_fake(tmp_path)
    study = read_studies(tmp_path)[8]
    assert study["early_stopping"] is True
    own = study["batchscale"]
    assert own["goal"] == "val/error < 0.2"
    assert own["stop_rule"] == "race"
    assert [search["ranges"] for search in own["searches"]] == [[[1, 0]]]
    assert own["finding"]["goal_reached"] is True
    reasons = {t["own"]["stop_reason"] for t in read_values(tmp_path).values()}
    assert reasons == {"goal", "raced"}


def test_all_trials_are_measured_at_the_same_steps(tmp_path):
    run_fake(tmp_path, rule=StopRule.BUDGET)
    steps = {
        tuple(line.split(",")[0] for line in str(t["rows"]).splitlines()[1:]) for t in read_values(tmp_path).values()
    }
    assert len(steps) == 1


# --- continuing -----------------------------------------------------------------------------------------------


def test_running_again_on_a_finished_folder_changes_nothing_and_trains_nothing(tmp_path):
    run_fake(tmp_path, space=WIDE)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file() and ".batchscale" not in p.parts}
    again = run_fake(tmp_path, "local", space=WIDE, options={"bad_trials": "1,2,3", "mischief": "raise"})
    assert again.result is RunResult.FINISHED
    assert before == {p: p.stat().st_mtime_ns for p in before}


@pytest.mark.parametrize("stop", STOPS)
def test_a_run_stopped_at_any_report_and_continued_gives_the_same_records(tmp_path, stop):
    run_fake(tmp_path / "whole", rule=stop, space=WIDE)
    for attempt in range(60):
        flag = StopFlag()
        timer = threading.Timer(0.02 * (attempt + 1), flag.set, [signal.SIGTERM])
        timer.start()
        outcome = run_fake(tmp_path / "parts", rule=stop, space=WIDE, options={"sleep_s": 0.0005}, stop=flag)
        timer.cancel()
        if outcome.result is RunResult.FINISHED:
            break
    assert outcome.result is RunResult.FINISHED
    assert read_values(tmp_path / "parts") == read_values(tmp_path / "whole")


@pytest.mark.parametrize("stop", STOPS)
def test_more_trials_extend_what_is_there(tmp_path, stop):
    run_fake(tmp_path, rule=stop, space=WIDE, trials=4)
    first = read_values(tmp_path)
    run_fake(tmp_path, rule=stop, space=WIDE, trials=9)
    more = read_values(tmp_path)
    assert all(more[key]["rows"] == trial["rows"] for key, trial in first.items())
    run_fake(tmp_path / "fresh", rule=stop, space=WIDE, trials=9)
    fresh = read_values(tmp_path / "fresh")
    assert {key for key, t in more.items() if t["status"] == "COMPLETE"} >= {
        key for key, t in fresh.items() if t["status"] == "COMPLETE"
    }
    assert steps_to_result(tmp_path / "fresh") == steps_to_result(tmp_path)


@pytest.mark.parametrize("stop", STOPS)
def test_a_larger_step_budget_trains_what_is_there_longer(tmp_path, stop):
    slow = fake_space(0.001, 0.015)  # the goal needs more than 200 steps
    run_fake(tmp_path, rule=stop, space=slow)
    short = read_values(tmp_path)
    assert {t["steps"] for t in short.values()} == {200}
    run_fake(tmp_path, rule=stop, space=slow, budget=Budget(600, Unit.STEPS))
    longer = read_values(tmp_path)
    run_fake(tmp_path / "fresh", rule=stop, space=slow, budget=Budget(600, Unit.STEPS))
    fresh = read_values(tmp_path / "fresh")
    assert longer.keys() == fresh.keys()
    assert all(longer[key]["rows"].startswith(short[key]["rows"]) for key in short)
    assert {key: t["rows"] for key, t in longer.items()} == {key: t["rows"] for key, t in fresh.items()}


def test_a_larger_budget_keeps_the_measured_steps_of_the_smaller_one(tmp_path):
    plan = EvaluationPlan(count=4)
    slow = fake_space(0.001, 0.015)
    run_fake(tmp_path, space=slow, evaluation=plan)
    run_fake(tmp_path, space=slow, evaluation=plan, budget=Budget(300, Unit.STEPS))
    rows = str(next(iter(read_values(tmp_path).values()))["rows"])
    assert [int(line.split(",")[0]) for line in rows.splitlines()[1:]] == [0, 50, 100, 150, 200, 225, 300]


@pytest.mark.parametrize(("stop", "kept"), [("budget", 6), ("goal", None), ("race", None)])
@pytest.mark.parametrize("runner", ["inline", "local"])
def test_trials_that_could_train_longer_are_finished_and_all_others_discarded(tmp_path, stop, kept, runner):
    logs = {"finish_log": tmp_path / "finished", "discard_log": tmp_path / "discarded"}
    run_fake(
        tmp_path / "tree", runner, rule=StopRule(stop), space=WIDE, options=logs, batch_sizes=BatchSizes((1,)), trials=6
    )
    trials = {trial_id: t for (_, trial_id), t in read_values(tmp_path / "tree").items()}
    may_go_on = {i: t["steps"] for i, t in trials.items() if t["own"]["stop_reason"] in ("budget", "raced")}
    assert may_go_on
    assert kept is None or len(may_go_on) == kept
    finished = [tuple(map(int, line.split())) for line in (tmp_path / "finished").read_text().splitlines()]
    assert {(1, i, steps) for i, steps in may_go_on.items()} == {one for one in finished if one[1] in trials}
    assert {steps for _, i, steps in finished if i not in trials} <= {0}  # started in case they were needed
    discarded = {int(line.split()[1]) for line in (tmp_path / "discarded").read_text().splitlines()}
    assert discarded >= trials.keys() - may_go_on.keys()
    assert not discarded & may_go_on.keys()


def test_what_was_said_of_a_study_is_taken_back_while_more_of_it_is_trained(tmp_path):
    run_fake(tmp_path, trials=3)
    verdicts = []
    plan = make_plan(fake_experiment(trials=6), fake_facts())
    run_plan(
        plan,
        tmp_path,
        RunSettings("inline", engine=FAKE_ENGINE),
        show=lambda s: verdicts.append((s.finished, read_studies(tmp_path)[8]["batchscale"].get("finding"))),
    )
    assert verdicts[0] == (False, None)
    assert verdicts[-1][0]
    assert verdicts[-1][1]["goal_reached"] is True


def test_more_batch_sizes_are_added(tmp_path):
    run_fake(tmp_path)
    run_fake(tmp_path, batch_sizes=BatchSizes((1, 4, 8)))
    assert sorted(read_studies(tmp_path)) == [1, 4, 8]


def test_another_experiment_is_refused_with_what_differs_and_nothing_changes(tmp_path):
    run_fake(tmp_path)
    before = read_values(tmp_path)
    with pytest.raises(RunError) as error:
        run_fake(tmp_path, seed=3, trials=2)
    assert "seed: 0 recorded, 3 requested" in str(error.value)
    assert "trials: 6 recorded, 2 requested; it may only grow" in str(error.value)
    with pytest.raises(RunError, match="budget at batch size 1: 200 steps recorded, 100 requested"):
        run_fake(tmp_path, budget=Budget(100, Unit.STEPS))
    with pytest.raises(RunError, match="batch_sizes: 8 is recorded and no longer requested"):
        run_fake(tmp_path, batch_sizes=BatchSizes((1,)))
    assert read_values(tmp_path) == before


# --- searching again ------------------------------------------------------------------------------------------


def test_a_best_trial_at_the_edge_is_searched_again_in_a_moved_space(tmp_path):
    run_fake(tmp_path, space=fake_space(0.001, 0.05), batch_sizes=BatchSizes((1,)), search=AGAIN)
    study = read_studies(tmp_path)[1]
    searches = study["batchscale"]["searches"]
    assert 2 <= len(searches) <= 3
    assert searches[1]["space"]["learning_rate"]["max_value"] == pytest.approx(0.05 * 50**0.5)
    assert study["parameter_configs"] == searches[-1]["space"]
    assert "learning_rate (high)" in searches[1]["reason"]
    trials = read_values(tmp_path)
    ids = [trial_id for _, trial_id in trials]
    assert sorted(ids) == list(range(1, len(ids) + 1))
    by_search = {n: [t for t in trials.values() if t["own"]["search"] == n] for n in range(1, len(searches) + 1)}
    for number, found in by_search.items():
        assert sum(t["status"] == "COMPLETE" for t in found) == 6
        assert min(t["trial_id"] for t in found) == searches[number - 1]["ranges"][0][0]


def test_a_goal_that_nobody_reached_is_searched_again_around_the_best(tmp_path):
    run_fake(tmp_path, space=fake_space(0.0001, 0.01), batch_sizes=BatchSizes((1,)), search=SearchPlan(repeats=2))
    study = read_studies(tmp_path)[1]
    searches = study["batchscale"]["searches"]
    assert searches[1]["reason"] == "no trial reached the goal"
    assert searches[1]["space"]["learning_rate"]["max_value"] > 0.01
    assert study["batchscale"]["finding"]["goal_reached"] is True


def test_what_is_still_at_an_edge_is_flagged(tmp_path):
    search = SearchPlan(repeats=0, edge_margin=0.3)
    run_fake(tmp_path, space=fake_space(0.001, 0.05), batch_sizes=BatchSizes((1,)), search=search)
    verdict = read_studies(tmp_path)[1]["batchscale"]["finding"]
    assert verdict["at_edge"] == [{"parameter": "learning_rate", "side": "high"}]
    records = read_tree(tmp_path)
    row = analyze(records, records.workloads[0], fake_experiment().goal).curve.row(0, named=True)
    assert row["edge_distance"] > DEFAULT_MARGIN  # the margin that counts is the experiment's
    assert (row["at_edge"], row["edge"]) == (True, "learning_rate high")


@pytest.mark.parametrize("ends", [(0.001, 0.05), (0.003, 0.1), (0.001, 1.0), (0.02, 10.0)])
def test_analysis_says_of_the_goal_of_a_run_what_the_run_found(tmp_path, ends):
    run_fake(tmp_path, space=fake_space(*ends), trials=8, search=SearchPlan(repeats=0))
    records = read_tree(tmp_path)
    curve = analyze(records, records.workloads[0], fake_experiment().goal).curve
    said = dict(curve.filter("at_edge").select("batch_size", "edge").rows())
    found = {
        size: ", ".join(f"{end['parameter']} {end['side']}" for end in study["batchscale"]["finding"]["at_edge"])
        for size, study in read_studies(tmp_path).items()
    }
    assert said == {size: names for size, names in found.items() if names}
    drawn = find_kind("curves").data(FigureRequest(records, (fake_experiment().goal,)))
    assert dict(drawn.drop_nulls("edge").select("batch_size", "edge").rows()) == said


def test_more_trials_extend_every_search_of_a_study(tmp_path):
    options = {"space": fake_space(0.001, 0.05), "batch_sizes": BatchSizes((1,)), "search": AGAIN}
    run_fake(tmp_path, **options, trials=4)
    run_fake(tmp_path, **options, trials=7)
    trials = read_values(tmp_path)
    ids = [trial_id for _, trial_id in trials]
    assert sorted(ids) == list(range(1, len(ids) + 1))
    for search in {t["own"]["search"] for t in trials.values()}:
        found = [t for t in trials.values() if t["own"]["search"] == search]
        assert sum(t["status"] == "COMPLETE" for t in found) == 7
        assert sorted(t["own"]["point"] for t in found) == list(range(len(found)))


def test_all_divergent_has_a_clear_end(tmp_path):
    outcome = run_fake(
        tmp_path,
        space=fake_space(5.0, 30.0),
        batch_sizes=BatchSizes((1,)),
        search=SearchPlan(repeats=0, max_attempts=9),
    )
    assert outcome.result is RunResult.FINISHED
    assert [t["status"] for t in read_values(tmp_path).values()] == ["INFEASIBLE"] * 9
    assert read_studies(tmp_path)[1]["batchscale"]["finding"] == {"goal_reached": False, "at_edge": [], "short": True}


# --- failures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mischief", ["kill", "exit", "raise", "memory", "allocate"])
def test_a_worker_that_fails_once_leaves_no_trace_in_the_records(tmp_path, mischief):
    run_fake(tmp_path / "whole")
    (tmp_path / "marks").mkdir()
    options = {"bad_trials": "2,5", "mischief": mischief, "once": tmp_path / "marks"}
    outcome = run_fake(tmp_path / "hurt", "local", options=options)
    assert read_values(tmp_path / "hurt") == read_values(tmp_path / "whole")
    assert sum(outcome.status.failures.values()) >= 2
    assert outcome.status.given_up == 0


def test_out_of_memory_lowers_how_many_train_at_once_and_says_so(tmp_path):
    (tmp_path / "marks").mkdir()
    options = {"bad_trials": "2", "mischief": "allocate", "once": tmp_path / "marks"}
    outcome = run_fake(tmp_path / "tree", "local", options=options)
    assert outcome.status.failures == {"out of memory": 1}
    assert "from now on 1 worker(s) train at once" in outcome.status.notice


def test_open_files_do_not_grow_with_the_number_of_trials(tmp_path, monkeypatch):
    process = psutil.Process()
    real = StudyWriter.commit
    files = []

    def commit(self, *args, **kwargs):
        files.append(process.num_fds())
        return real(self, *args, **kwargs)

    monkeypatch.setattr(StudyWriter, "commit", commit)
    run_fake(tmp_path, trials=100, rule=StopRule.BUDGET)
    assert len(files) == 200
    assert max(files) - min(files) <= 4


def test_a_trial_that_always_fails_is_incomplete_with_the_reason_and_replaced(tmp_path):
    options = {"bad_trials": "2", "mischief": "kill"}
    outcome = run_fake(tmp_path, "local", options=options, batch_sizes=BatchSizes((1,)), settings={"retries": 1})
    trials = {trial_id: t for (_, trial_id), t in read_values(tmp_path).items()}
    assert trials[2]["status"] == "INCOMPLETE"
    assert "SIGKILL" in trials[2]["own"]["failure"]
    assert "about to misbehave" in trials[2]["own"]["log_lines"]
    assert sum(t["status"] == "COMPLETE" for t in trials.values()) == 6
    assert outcome.status.given_up == 1


def test_incomplete_trials_are_trained_when_asked_for(tmp_path):
    bad = {"bad_trials": "2", "mischief": "raise"}
    settings = {"retries": 0}
    run_fake(tmp_path / "hurt", options=bad, settings=settings)
    run_fake(tmp_path / "hurt", settings={"retry_incomplete": True})
    trials = read_values(tmp_path / "hurt")
    assert {t["status"] for t in trials.values()} == {"COMPLETE"}
    run_fake(tmp_path / "whole")
    for key, trial in read_values(tmp_path / "whole").items():
        assert trials[key]["rows"] == trial["rows"]


def test_an_engine_that_never_works_ends_the_run_with_the_reason(tmp_path):
    bad = {"bad_trials": ",".join(map(str, range(1, 100))), "mischief": "raise"}
    with pytest.raises(RunError, match="this trial cannot be trained"):
        run_fake(tmp_path, options=bad)


def test_a_full_disk_pauses_and_loses_nothing(tmp_path, monkeypatch):
    run_fake(tmp_path / "whole")
    refusals = iter([True] * 3 + [False] * 5 + [True] * 4)
    real = StudyWriter.commit

    def commit(self, *args, **kwargs):
        if next(refusals, False):
            raise StorageError("the disk is full", 28)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(StudyWriter, "commit", commit)
    outcome = run_fake(tmp_path / "full")
    assert outcome.result is RunResult.FINISHED
    assert next(refusals, None) is None
    assert read_values(tmp_path / "full") == read_values(tmp_path / "whole")


@pytest.mark.parametrize("first_refused", range(5))
def test_a_disk_too_full_for_the_facts_of_a_study_pauses_and_loses_nothing(tmp_path, monkeypatch, first_refused):
    options = {"space": fake_space(0.001, 0.05), "batch_sizes": BatchSizes((1,)), "search": AGAIN}

    def run_twice(root):
        if not (root / "first").exists():
            run_fake(root, **options, trials=4)
            (root / "first").touch()
        run_fake(root, **options, trials=7)

    run_twice(tmp_path / "whole")
    calls = iter(range(10**6))
    real = StudyWriter.update

    def update(self, record):
        if first_refused <= next(calls) < first_refused + 3:
            raise StorageError("the disk is full", 28)
        return real(self, record)

    monkeypatch.setattr(StudyWriter, "update", update)
    for _ in range(4):  # at the very start a full disk is refused: then the user makes room and runs it again
        with contextlib.suppress(StorageError):
            run_twice(tmp_path / "full")
    assert next(calls) > first_refused + 3
    assert read_values(tmp_path / "full") == read_values(tmp_path / "whole")
    assert read_studies(tmp_path / "full") == read_studies(tmp_path / "whole")


def test_too_little_free_space_pauses_until_there_is_more(tmp_path, monkeypatch):
    free = iter([0, 0, 10**12])
    monkeypatch.setattr(disk, "CHECK_EVERY_S", 0.05)
    monkeypatch.setattr(disk.DiskGuard.__init__, "__defaults__", (disk.WATERMARK_BYTES, lambda _p: next(free, 10**12)))
    paused = []
    plan = make_plan(fake_experiment(), fake_facts())
    run_plan(plan, tmp_path, RunSettings("inline", engine=FAKE_ENGINE), show=lambda s: paused.append(s.paused))
    assert any(text and "must be" in text for text in paused)
    assert paused[-1] is None
    assert len(read_values(tmp_path)) == 12


def test_a_clock_that_jumps_is_harmless(tmp_path, monkeypatch):
    run_fake(tmp_path / "whole")
    jumps = iter(range(10**6))
    monkeypatch.setattr(time, "time", lambda: 1e9 + (-1) ** next(jumps) * 3600 * 24)
    run_fake(tmp_path / "jumped")
    assert read_values(tmp_path / "jumped") == read_values(tmp_path / "whole")


def test_two_runs_on_one_folder_are_refused(tmp_path):
    release = threading.Event()
    entered = threading.Event()

    def hold(_snapshot):
        entered.set()
        release.wait(10)

    plan = make_plan(fake_experiment(), fake_facts())
    settings = RunSettings("inline", engine=FAKE_ENGINE)
    thread = threading.Thread(target=run_plan, args=(plan, tmp_path, settings, hold))
    thread.start()
    assert entered.wait(10)
    try:
        with pytest.raises(StudyLockedError, match="one run may write to a folder at a time"):
            run_plan(plan, tmp_path, settings)
    finally:
        release.set()
        thread.join()


def test_more_asked_of_a_finished_folder_makes_it_unfinished_before_anything_else(tmp_path, monkeypatch):
    run_fake(tmp_path, trials=3)
    assert read_status(tmp_path).finished
    monkeypatch.setattr("batchscale.run.session._run_loop", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run_fake(tmp_path, trials=4)
    assert not read_status(tmp_path).finished


def test_a_file_in_the_way_of_the_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for way in ("file", "file/below", "link"):
        with pytest.raises(RunError, match="which is none"):
            run_fake(tmp_path / way)


def test_a_space_without_ranges_is_not_searched_again(tmp_path):
    fixed = SearchPlan(repeats=2, fixed={"learning_rate": 0.001})
    run_fake(tmp_path, batch_sizes=BatchSizes((1,)), search=fixed)
    own = read_studies(tmp_path)[1]["batchscale"]
    assert (own["finding"]["goal_reached"], len(own["searches"])) == (False, 1)


@pytest.mark.parametrize(
    "asked",
    [
        {"experiment": {}, "train_steps": {}, "max_attempts": 1},
        {"experiment": 1, "train_steps": {}, "max_attempts": 1},
        {"experiment": {"trials": "x", "finishers": 1, "search.repeats": 0}, "train_steps": {}, "max_attempts": 1},
    ],
)
def test_what_was_asked_for_counts_only_with_its_types(tmp_path, asked):
    run_fake(tmp_path, trials=3)
    next(tmp_path.rglob("experiment.json")).write_text(json.dumps(asked))
    assert run_fake(tmp_path, trials=3).result is RunResult.FINISHED


def test_the_seconds_of_a_trial_that_trains_longer_add_up(tmp_path):
    slow = fake_space(0.001, 0.015)
    run_fake(tmp_path, space=slow, batch_sizes=BatchSizes((1,)), options={"sleep_s": 0.005})
    path = tmp_path / "fake" / "model" / "sgd" / "1" / "1" / "metadata.json"
    before = json.loads(path.read_text())["batchscale"]["timing"]["total_s"]
    run_fake(tmp_path, space=slow, batch_sizes=BatchSizes((1,)), budget=Budget(600, Unit.STEPS))
    assert json.loads(path.read_text())["batchscale"]["timing"]["total_s"] > before > 0.1


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs():
    with pytest.raises(StorageError):
        run_fake(Path("/proc/batchscale"))


def test_the_folder_keeps_the_experiment_it_was_made_with(tmp_path):
    run_fake(tmp_path)
    asked = json.loads((tmp_path / ".batchscale" / "experiment.json").read_text())
    assert asked["experiment"]["goal"] == "val/error < 0.2"
    assert asked["train_steps"] == {"1": 200, "8": 200}


def test_the_fake_reaches_its_goal_where_its_formula_says(tmp_path):
    run_fake(tmp_path, rule=StopRule.GOAL, batch_sizes=BatchSizes((1,)))
    trials = read_values(tmp_path).values()
    assert trials
    for trial in trials:
        rate = trial["parameters"]["learning_rate"]
        expected = next((s for s in range(0, 201, 10) if error_at(rate, s) < 0.2), 200)
        assert trial["steps"] == expected


class Usage(NamedTuple):
    """What ``shutil.disk_usage`` gives."""

    total: int
    used: int
    free: int


def cut_measurements(root: Path, share: float) -> Path:
    """Cuts the measurements of a recorded trial, at the end of a row."""
    path = sorted(root.rglob("measurements.csv"))[0]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: int(len(lines) * share)]))
    return path


def drop_checksum(measurements: Path) -> None:
    """Make a trial one of an earlier version, whose measurements have no checksum."""
    path = measurements.with_name("metadata.json")
    metadata = json.loads(path.read_text())
    del metadata["batchscale"]["measurements_sha256"], metadata["batchscale"]["metadata_sha256"]
    path.write_text(json.dumps(metadata))


def test_a_trial_whose_measurements_have_lost_their_end_is_not_trained_further(tmp_path):
    slow = fake_space(0.001, 0.015)
    run_fake(tmp_path, space=slow)
    path = cut_measurements(tmp_path, 0.5)
    drop_checksum(path)
    damaged = path.read_bytes()
    with pytest.raises(RunError, match=r"trial 1 can be trained further if all its 21 measurements up to step 200"):
        run_fake(tmp_path, space=slow, budget=Budget(600, Unit.STEPS))
    assert path.read_bytes() == damaged


@pytest.mark.parametrize(
    ("damage", "checksum"),
    [*((damage, False) for damage in ("cut", "gap", "garbage", "empty", "missing")), ("gap", True), ("missing", True)],
)
def test_damaged_measurements_keep_only_their_own_study_from_training_longer(tmp_path, damage, checksum):
    slow = fake_space(0.001, 0.015)
    run_fake(tmp_path, space=slow, rule=StopRule.BUDGET)
    path = tmp_path / "fake" / "model" / "sgd" / "8" / "2" / "measurements.csv"
    lines = path.read_text().splitlines(keepends=True)
    damaged = {
        "cut": lines[:-1],
        "gap": lines[:5] + lines[6:],
        "garbage": [*lines[:5], "what is this?\n", *lines[6:]],
        "empty": [],
        "missing": [],
    }
    path.write_text("".join(damaged[damage]))
    if damage == "missing":
        path.unlink()
    if not checksum:
        drop_checksum(path)
    found = "is not as it was recorded" if checksum else "can be trained further if"
    with pytest.raises(RunError, match=rf"trial 2 {found}.*run again(.|\n)*All other studies"):
        run_fake(tmp_path, space=slow, rule=StopRule.BUDGET, budget=Budget(600, Unit.STEPS))
    trials = read_trial_steps(tmp_path)
    assert {steps for (size, _), steps in trials.items() if size == 1} == {600}
    assert trials[8, 2] == 200
    assert path.exists() == (damage != "missing")
    assert damage == "missing" or path.read_text() == "".join(damaged[damage])


def read_trial_steps(root: Path) -> dict[tuple[int, int], int]:
    files = [path for path in root.rglob("metadata.json") if ".batchscale" not in path.parts]
    return {(int(p.parent.parent.name), int(p.parent.name)): json.loads(p.read_text())["steps"] for p in files}


@pytest.mark.parametrize("damage", ["", "{", "[]", "missing", "budgets", "searches", "finding", "best"])
def test_a_damaged_study_waits_untouched_while_the_others_run(tmp_path, damage):
    run_fake(tmp_path, trials=3)
    study = tmp_path / "fake" / "model" / "sgd" / "8"
    path = study / ("1/metadata.json" if damage == "best" else "study.json")
    data = json.loads(path.read_text())
    if damage == "missing":
        path.unlink()
    elif damage in ("budgets", "searches", "finding", "best"):
        data["batchscale"][damage] = {"budgets": ["x"], "searches": [], "finding": 3, "best": "x"}[damage]
        path.write_text(json.dumps(data))
    else:
        path.write_text(damage)
    before = {p: p.read_bytes() for p in study.rglob("*") if p.is_file()}
    with pytest.raises(RunError, match=r"/8(.|\n)*run again(.|\n)*All other studies are finished"):
        run_fake(tmp_path, trials=4)
    assert {p: p.read_bytes() for p in study.rglob("*") if p.is_file()} == before
    assert len([size for size, _ in read_trial_steps(tmp_path) if size == 1]) == 4


@pytest.mark.parametrize("damage", ["hash", "lock", "working", "study", "stage", "journal"])
def test_a_study_that_cannot_be_opened_is_named_and_left_alone_while_the_others_finish(tmp_path, damage):
    run_fake(tmp_path, trials=3)
    study = tmp_path / "fake" / "model" / "sgd" / "8"
    working = next(path for path in (tmp_path / ".batchscale").rglob("lock") if path.parent.name == "8").parent
    if damage == "hash":
        data = json.loads((study / "study.json").read_text())
        data["batchscale"]["spec_hash"] = "0123456789abcdef"
        (study / "study.json").write_text(json.dumps(data))
    elif damage == "working":
        shutil.rmtree(working)
        working.write_text("in the way")
    elif damage == "study":
        shutil.rmtree(study)
        study.write_text("in the way")
    else:
        path = working / {"lock": "lock", "stage": "study.json.new", "journal": "journal-4"}[damage]
        path.unlink(missing_ok=True)
        path.mkdir()
        (path / "inside").touch()
    before = {p: p.read_bytes() for p in study.rglob("*") if p.is_file()}
    with pytest.raises(RunError, match=r"/8(.|\n)*All other studies are finished"):
        run_fake(tmp_path, trials=4)
    assert {p: p.read_bytes() for p in study.rglob("*") if p.is_file()} == before
    assert len([size for size, _ in read_trial_steps(tmp_path) if size == 1]) == 4


def test_a_study_whose_folder_vanishes_during_a_run_is_named_and_the_others_finish(tmp_path, monkeypatch):
    real = StudyWriter.commit

    def commit(self, trial, measurements=None):
        if self.folder.name == "8" and trial.trial_id == 3:
            shutil.rmtree(self.folder)
        real(self, trial, measurements)

    monkeypatch.setattr(StudyWriter, "commit", commit)
    with pytest.raises(RunError, match=r"/8(.|\n)*run again(.|\n)*All other studies are finished"):
        run_fake(tmp_path)
    assert len([size for size, _ in read_trial_steps(tmp_path) if size == 1]) == 6


def test_a_trial_that_fails_while_it_trains_longer_is_incomplete_and_can_be_tried_again(tmp_path):
    options = {"space": fake_space(0.001, 0.015), "batch_sizes": BatchSizes((1,)), "budget": Budget(600, Unit.STEPS)}
    run_fake(tmp_path, **options | {"budget": Budget(200, Unit.STEPS)})
    bad = {"bad_trials": "2", "mischief": "raise"}
    outcome = run_fake(tmp_path, **options, options=bad, settings={"retries": 0})
    assert outcome.status.given_up == 1
    trial = read_values(tmp_path)["fake/model/sgd/1", 2]
    assert (trial["status"], trial["steps"]) == ("INCOMPLETE", 200)
    assert "cannot be trained" in trial["own"]["failure"]
    assert len(str(trial["rows"]).splitlines()) == 22
    run_fake(tmp_path, **options, settings={"retry_incomplete": True})
    run_fake(tmp_path / "fresh", **options)
    fresh = read_values(tmp_path / "fresh")["fake/model/sgd/1", 2]
    assert read_values(tmp_path)["fake/model/sgd/1", 2] == fresh


@pytest.mark.parametrize("less", [{"trials": 3}, {"budget": Budget(100, Unit.STEPS)}, {"finishers": 1}])
def test_less_is_refused_also_when_the_folder_has_lost_what_it_was_asked_for(tmp_path, less):
    run_fake(tmp_path, finishers=2)
    next(tmp_path.rglob("experiment.json")).unlink()
    before = read_values(tmp_path), read_studies(tmp_path)
    with pytest.raises(RunError, match="may only grow"):
        run_fake(tmp_path, **({"finishers": 2} | less))
    assert (read_values(tmp_path), read_studies(tmp_path)) == before


def test_a_damaged_trial_keeps_only_its_own_study_from_running(tmp_path):
    run_fake(tmp_path, batch_sizes=BatchSizes((1, 4)))
    victim = tmp_path / "fake" / "model" / "sgd" / "4" / "1" / "metadata.json"
    victim.write_text(victim.read_text()[:20])
    with pytest.raises(RunError, match=r"trial 1 is not as it was recorded(.|\n)*All other studies are finished"):
        run_fake(tmp_path, batch_sizes=BatchSizes((1, 4, 8)))
    assert len(list((tmp_path / "fake" / "model" / "sgd" / "8").glob("*/metadata.json"))) == 6
    assert len(victim.read_text()) == 20


@pytest.mark.parametrize("text", ["[]", "{}", "{", '{"experiment": 1}'])
def test_a_folder_whose_own_experiment_file_is_damaged_still_knows_its_experiment(tmp_path, text):
    run_fake(tmp_path, trials=3)
    stored = next(tmp_path.rglob("experiment.json"))
    stored.write_text(text)
    with pytest.raises(BatchscaleError):
        run_fake(tmp_path, trials=3, seed=3)
    assert run_fake(tmp_path, trials=4).result is RunResult.FINISHED


def test_a_folder_that_a_later_version_was_asked_for_is_refused_by_name(tmp_path):
    run_fake(tmp_path, trials=3)
    stored = next(tmp_path.rglob("experiment.json"))
    later = json.dumps({**json.loads(stored.read_text()), "format_version": 99})
    stored.write_text(later)
    before = read_values(tmp_path)
    with pytest.raises(RunError, match=r"versions up to 1\. Found version 99, written by a later batchscale"):
        run_fake(tmp_path, trials=4)
    assert (read_values(tmp_path), stored.read_text()) == (before, later)


@pytest.mark.parametrize(
    "settings", [{"keep_states_gb": float("nan")}, {"keep_states_gb": float("inf")}, {"keep_states_gb": -1.0}]
)
def test_absurd_settings_are_refused_before_anything_is_written(tmp_path, settings):
    with pytest.raises(RunError, match="from 0"):
        run_fake(tmp_path / "new", settings=settings)
    assert not (tmp_path / "new").exists()


def test_a_disk_that_cannot_hold_the_records_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _path: Usage(10**12, 10**12, disk.WATERMARK_BYTES + 1000))
    with pytest.raises(RunError, match="Free some space"):
        run_fake(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def change_the_experiment(folder: Path, working: Path) -> None:
    text = (folder / "study.json").read_text()
    (folder / "study.json").write_text(text.replace('"spec_hash": "', '"spec_hash": "f'))


def make_the_lock_a_folder(folder: Path, working: Path) -> None:
    (working / "lock").unlink()
    (working / "lock").mkdir()


def change_a_measurement(folder: Path, working: Path) -> None:
    path = folder / "1" / "measurements.csv"
    path.write_text(path.read_text().replace("0.", "1.", 1))


@pytest.mark.parametrize("damage", [change_the_experiment, make_the_lock_a_folder, change_a_measurement])
def test_one_damaged_study_is_named_and_the_others_go_on(tmp_path, damage):
    run_fake(tmp_path, batch_sizes=BatchSizes((1, 4)))
    below = Path("fake", "model", "sgd", "4")
    damage(tmp_path / below, tmp_path / ".batchscale" / "studies" / below)
    with pytest.raises(RunError, match=r"sgd/4(.|\n)*All other studies are finished"):
        run_fake(tmp_path, batch_sizes=BatchSizes((1, 4, 8)))
    assert len(list((tmp_path / "fake" / "model" / "sgd" / "8").glob("*/metadata.json"))) == 6
