"""What a run shows while it goes on: the table of a terminal and the lines of a log."""

import dataclasses
import io

from rich.console import Console

from batchscale.cli.live import LiveDisplay, PlainDisplay, draw_snapshot
from batchscale.driver.snapshot import Snapshot, StudySnapshot

DONE = StudySnapshot(
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
RUN = Snapshot(
    workload="digits/fc_64/sgd", goal="val/classification_error < 0.1", source="e.toml", written_at=0.0, elapsed_s=75.0,
    workers=2, steps_per_s=1500.0, time_left_s=3700.0, finished=False, failures={"killed": 2}, studies=(DONE, GOING),
)  # fmt: skip


def rendered(snapshot: Snapshot) -> list[str]:
    console = Console(file=io.StringIO(), width=200)
    console.print(draw_snapshot(snapshot))
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
    assert "at most 1 h 01 min left" in headline
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
