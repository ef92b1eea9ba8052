"""What a run shows while it goes on: the table of a terminal and the lines of a log."""

import dataclasses
import io

from rich.console import Console

from batchscale.cli.progress import LiveDisplay, PlainDisplay, draw_status
from batchscale.run.status import NewSearch, RangeChange, RunStatus, StudyStatus, WorkerStatus

DONE = StudyStatus(
    batch_size=8, search=2, done=True, wanted=10, complete=20, infeasible=3, incomplete=0, running=0, reached=5,
    best_steps=1234, front=1300, train_steps=5000, share=1.0, trial_steps=26_000, seconds=10.0,
    note="at edge: learning_rate high; 2 searches",
)  # fmt: skip
GOING = dataclasses.replace(
    DONE,
    batch_size=4096,
    search=1,
    done=False,
    complete=4,
    infeasible=0,
    running=2,
    best_steps=None,
    share=0.5,
    note=None,
)
RUN = RunStatus(
    workload="digits/fc_64/sgd", goal="val/classification_error < 0.1", source="e.toml", written_at=0.0, elapsed_s=75.0,
    workers=2, steps_per_s=1500.0, time_left_s=3700.0, finished=False, failures={"killed": 2}, studies=(DONE, GOING),
    time_left_assumes=("no study is searched again",),
)  # fmt: skip


def rendered(snapshot: RunStatus) -> list[str]:
    console = Console(file=io.StringIO(), width=200)
    console.print(draw_status(snapshot))
    return console.file.getvalue().splitlines()


def test_the_table_has_a_headline_and_a_row_for_each_study():
    headline, header, first, second = rendered(RUN)
    for part in (
        "1 min 15 s",
        "1 of 2 studies",
        "24 complete, 3 infeasible, 2 in training",
        "1,500 steps/s",
        "2 killed",
    ):
        assert part in headline
    assert "about 1 h left if no study is searched again" in headline
    assert first.split()[:7] == ["8", "2", "20/20", "3", "5", "1,234", "done;"]
    assert first.rstrip().endswith("done; at edge: learning_rate high; 2 searches")
    assert second.split()[:5] == ["4,096", "1", "4/10", "+2", "0"]
    assert header.index("batch size") + len("batch size") == first.index("8") + 1  # numbers stand under their names


def test_a_pause_is_told_above_the_table():
    assert "The disk is full." in rendered(dataclasses.replace(RUN, paused="The disk is full."))[1]


def test_a_log_gets_each_study_once_and_the_state_now_and_then():
    stream = io.StringIO()
    display = PlainDisplay(stream, every_s=3600)
    for _ in range(3):
        display.show(RUN)
    display.close()
    assert stream.getvalue().splitlines() == [
        "batch size 8: goal reached after 1,234 steps (20 complete, 3 infeasible; at edge: learning_rate high; "
        "2 searches)",
        stream.getvalue().splitlines()[1],
    ]
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_is_left_clean():
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    display = LiveDisplay(console)
    display.show(RUN)
    display.close()
    assert "4,096" in console.file.getvalue()
    assert console.file.getvalue().endswith(("\x1b[2K", "\x1b[?25h"))  # lines erased, cursor shown again


def test_a_quiet_display_tells_what_needs_attention_only():
    stream = io.StringIO()
    display = PlainDisplay(stream, quiet=True)
    display.show(RUN)
    display.show(dataclasses.replace(RUN, paused="The disk is full."))
    assert stream.getvalue() == "The disk is full.\n"


def lines_of(*snapshots: RunStatus, every_s: float = 3600) -> list[str]:
    stream = io.StringIO()
    display = PlainDisplay(stream, every_s)
    for snapshot in snapshots:
        display.show(snapshot)
    return stream.getvalue().splitlines()


def test_a_log_and_a_terminal_announce_a_new_search_once_with_its_reason_and_ranges():
    change = RangeChange("learning_rate", (0.001, 0.1), (0.01, 1.0))
    new = NewSearch(2, "the best trial lies at the edge of learning_rate (high)", (change,))
    run = dataclasses.replace(RUN, studies=(dataclasses.replace(GOING, search=2, new_searches=(new,)),))
    said = (
        "batch size 4096: search 2 begins, because the best trial lies at the edge of learning_rate (high): "
        "learning_rate 0.001 to 0.1 → 0.01 to 1"
    )
    assert lines_of(run, run).count(said) == 1
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    display = LiveDisplay(console)
    display.show(run)
    display.show(run)
    display.close()
    assert console.file.getvalue().count("search 2 begins") == 1


def test_infeasible_trials_are_told_as_they_happen_but_not_each_second():
    def run(diverged: int) -> RunStatus:
        return dataclasses.replace(RUN, studies=(dataclasses.replace(GOING, diverged=diverged),))

    told = [line for line in lines_of(run(0), run(1), run(2)) if "so far" in line]
    assert told == ["batch size 4096: 1 infeasible so far (training diverged)"]
    told = [line for line in lines_of(run(0), run(1), run(2), run(2), every_s=0) if "so far" in line]
    assert told == [f"batch size 4096: {n} infeasible so far (training diverged)" for n in (1, 2)]
    assert "24 complete, 5 infeasible" in rendered(dataclasses.replace(run(2), studies=(DONE, *run(2).studies)))[0]


def test_it_is_said_what_each_worker_does_and_a_slow_model_has_a_rate():
    doing = (
        WorkerStatus("0", "training", 8, (3,), 12, 400, 5.0),
        WorkerStatus("1", "compiling", 64, (1, 2, 3), 0, 400, 75.0),
        WorkerStatus("2", "loading", 64, (4,), 0, 400, 2.0),
        WorkerStatus("3", "starting"),
    )
    slow = dataclasses.replace(RUN, doing=doing, steps_per_s=0.2)
    for text in (" ".join(lines_of(slow)), " ".join(" ".join(rendered(slow)).split())):
        assert "0.2 steps/s" in text
        assert "worker 0: training trial 3 of batch size 8, step 12 of 400" in text
        assert "worker 1: compiling for batch size 64, for 1 min 15 s" in text
        assert "worker 2: loading data and setting up for batch size 64" in text
        assert "worker 3: starting" in text
    many = dataclasses.replace(RUN, doing=doing * 2)
    assert "workers: 2 training, 2 compiling, 2 loading, 2 starting" in " ".join(lines_of(many))
