"""Committed trials stay, the newest is old or new, never mixed: whatever call the process dies at, the disk is full at,
or the power is lost after."""

import contextlib
import functools
import hashlib
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from records_fakes import Crash, FaultyFileSystem, MemoryFileSystem, make_rows, make_study, make_trial

from batchscale.errors import StorageError
from batchscale.records.check.tree import check_tree
from batchscale.records.model import Status, study_text, trial_text
from batchscale.records.tree.measurements import csv_text
from batchscale.records.tree.open_study import open_study

ROOT = Path("/tree")
STUDY = "/tree/groups/tiny/net/sgd/8"
FIRST, SECOND = make_study(trials=1), make_study(trials=2)
EXTENDED = 2
STEPS = (0, 10, 20, 30, 40)


def version(trial_id, steps):
    status = Status.INFEASIBLE if trial_id == 3 else Status.COMPLETE
    trial = make_trial(trial_id, steps, status)
    rows = make_rows(trial_id, [step for step in STEPS if step <= steps])
    return trial, rows


@functools.cache
def expected_files(trial_id, steps):
    trial, rows = version(trial_id, steps)
    text = csv_text(rows)
    checksum = hashlib.sha256(text).hexdigest()
    return trial_text(replace(trial, metadata=replace(trial.metadata, measurements_sha256=checksum))), text


def ignore(_):
    pass


def advance(writer, trial_id, steps, acknowledged):
    """Measure the trial up to ``steps`` from wherever its journal ends, and commit it."""
    trial, rows = version(trial_id, steps)
    table = writer.journal(trial_id)
    last = table.steps[-1] if table and table.steps else -1
    for row in rows:
        if row.step > last:
            writer.append(trial_id, [row], sync=row.step % 20 == 0)
    writer.commit(trial)
    acknowledged[trial_id] = steps


def run(fs, acknowledged):
    """The same command, started or started again: a study of three trials, one of which is then trained longer."""
    with open_study(ROOT, FIRST, fs=fs, notice=ignore) as writer:
        acknowledged.update({key: trial.steps for key, trial in writer.committed_trials().items()})
        for trial_id in (1, 2):
            if trial_id not in writer.committed_trials():
                advance(writer, trial_id, 20, acknowledged)
        if writer.record != SECOND:
            writer.update(SECOND)
        if writer.committed_trials()[EXTENDED].steps == 20:
            writer.reopen(EXTENDED)
            advance(writer, EXTENDED, 40, acknowledged)
        if 3 not in writer.committed_trials():
            trial, rows = version(3, 20)
            writer.commit(trial, rows)
            acknowledged[3] = 20


def tree_files(fs):
    return {path: data for path, data in fs.files().items() if "/.batchscale/" not in path}


def new_disk(can_exchange=True):
    fs = MemoryFileSystem(can_exchange)
    fs.mkdir(ROOT)
    fs.sync_directory(Path("/"))
    return fs


def uninterrupted(can_exchange=True):
    fs = new_disk(can_exchange)
    counter = FaultyFileSystem(fs, at=-1)
    run(counter, {})
    return tree_files(fs), counter.count


def require_sound(fs, acknowledged, *, mixed_allowed=False):
    """Every trial in the tree is whole, and none that was acknowledged is missing or older than acknowledged."""
    files = tree_files(fs)
    assert files.pop(f"{STUDY}/study.json", study_text(FIRST)) in (study_text(FIRST), study_text(SECOND))
    folders = {path.rpartition("/")[0] for path in files}
    for folder in folders:
        trial_id = int(folder.rpartition("/")[2])
        found = files.pop(f"{folder}/metadata.json"), files.pop(f"{folder}/measurements.csv")
        allowed = [expected_files(trial_id, steps) for steps in ((20, 40) if trial_id == EXTENDED else (20,))]
        if mixed_allowed and trial_id == EXTENDED:
            allowed.append((allowed[0][0], allowed[1][1]))
        assert found in allowed
        if acknowledged.get(trial_id) == 40:
            assert found == allowed[1]
    assert not files
    assert {f"{STUDY}/{trial_id}" for trial_id in acknowledged} <= folders
    for entry in fs.list_directory(ROOT):
        assert entry.name in (".batchscale", "groups")
    if folders:
        require_clean_check(fs)


def recover(fs, acknowledged):
    """The next writer opens the study and does nothing else: whatever was half-done is now old or new."""
    open_study(ROOT, FIRST, fs=fs, notice=ignore).close()
    require_sound(fs, acknowledged)


CHECKED = set()


def require_clean_check(fs):
    """The check finds nothing; a tree of the same files is checked once."""
    state = tuple(sorted(tree_files(fs).items()))
    if state not in CHECKED:
        assert check_tree(ROOT, fs) == []
        CHECKED.add(state)


EXCHANGE = pytest.mark.parametrize("can_exchange", [True, False], ids=["exchange", "no_exchange"])


@EXCHANGE
@pytest.mark.parametrize("tear", [9, pytest.param(0, marks=pytest.mark.slow)])
def test_a_crash_at_every_call_leaves_whole_trials_and_the_next_run_finishes_the_same_records(can_exchange, tear):
    wanted, num_calls = uninterrupted(can_exchange)
    assert num_calls > 100
    for at in range(1, num_calls + 1):
        fs, acknowledged = new_disk(can_exchange), {}
        with pytest.raises(Crash):
            run(FaultyFileSystem(fs, at, tear=tear), acknowledged)
        fs.kill()
        require_sound(fs, acknowledged, mixed_allowed=not can_exchange)
        recover(fs, acknowledged)
        run(fs, acknowledged)
        assert tree_files(fs) == wanted


@EXCHANGE
def test_a_crash_in_the_recovery_from_a_crash_is_recovered_from(can_exchange):
    wanted, num_calls = uninterrupted(can_exchange)
    random = Random(5)
    for first in range(1, num_calls + 1, 3):
        fs, acknowledged = new_disk(can_exchange), {}
        for at in (first, random.randint(1, 40), random.randint(1, 40)):
            try:
                run(FaultyFileSystem(fs, at), acknowledged)
            except Crash:
                fs.kill()
            require_sound(fs, acknowledged, mixed_allowed=not can_exchange)
        recover(fs, acknowledged)
        run(fs, acknowledged)
        assert tree_files(fs) == wanted


@EXCHANGE
@pytest.mark.parametrize("tear", [5, pytest.param(0, marks=pytest.mark.slow)])
def test_a_full_disk_at_every_call_is_a_pause(can_exchange, tear):
    wanted, num_calls = uninterrupted(can_exchange)
    refusals = 0
    for at in range(1, num_calls + 1):
        fs, acknowledged = new_disk(can_exchange), {}
        full = FaultyFileSystem(fs, at, kind="full", tear=tear)
        try:
            run(full, acknowledged)
        except StorageError as error:
            assert error.errno == 28
            refusals += 1
        assert not fs.locked  # the failed run gave back its lock
        require_sound(fs, acknowledged, mixed_allowed=not can_exchange)
        recover(fs, acknowledged)
        run(fs, acknowledged)
        assert tree_files(fs) == wanted
    assert refusals > 50


@EXCHANGE
def test_a_disk_that_stays_full_loses_nothing(can_exchange):
    wanted, num_calls = uninterrupted(can_exchange)
    for at in range(1, num_calls + 1, 2):
        fs, acknowledged = new_disk(can_exchange), {}
        with contextlib.suppress(StorageError):
            run(FaultyFileSystem(fs, at, kind="full", tear=3, lasting=True), acknowledged)
        require_sound(fs, acknowledged, mixed_allowed=not can_exchange)
        recover(fs, acknowledged)
        run(fs, acknowledged)
        assert tree_files(fs) == wanted


@EXCHANGE
def test_the_same_writer_goes_on_when_the_disk_has_space_again(can_exchange):
    """Not reopened: each call that failed is made again on the same writer, as a paused study does."""
    wanted, num_calls = uninterrupted(can_exchange)
    for at in range(40, num_calls + 1):
        fs = new_disk(can_exchange)
        full = FaultyFileSystem(fs, at, kind="full", tear=4)
        try:
            writer = open_study(ROOT, FIRST, fs=full, notice=ignore)
        except StorageError:
            continue
        for step in (
            lambda w: 1 in w.committed_trials() or advance(w, 1, 20, {}),
            lambda w: 2 in w.committed_trials() or advance(w, 2, 20, {}),
            lambda w: w.update(SECOND),
            lambda w: (w.reopen(2), advance(w, 2, 40, {})),
            lambda w: w.commit(*version(3, 20)),
        ):
            try:
                step(writer)
            except StorageError:
                step(writer)
        writer.close()
        assert tree_files(fs) == wanted


@EXCHANGE
@pytest.mark.parametrize("block", range(4))
def test_lost_writes_never_touch_what_was_committed(can_exchange, block):
    """1,000 seeds over both ways of replacing: power is lost after every call in turn, then after random ones."""
    wanted, num_calls = uninterrupted(can_exchange)
    for seed in range(block * 125, block * 125 + 125):
        random = Random(f"{seed} {can_exchange}")
        fs, acknowledged = new_disk(can_exchange), {}
        at = seed % num_calls + 1
        for _ in range(random.randint(1, 3)):
            try:
                run(FaultyFileSystem(fs, at, tear=random.choice((0, 3))), acknowledged)
            except Crash:
                at = random.randint(1, num_calls)
                if random.random() < 0.3:  # the process dies first, the power is lost in the run after it
                    fs.kill()
                    continue
            fs.lose_power(random)
            require_sound(fs, acknowledged, mixed_allowed=not can_exchange)
        recover(fs, acknowledged)
        run(fs, acknowledged)
        assert tree_files(fs) == wanted


def test_the_memory_disk_does_lose_what_is_not_synced():
    """The model has teeth: the same run on a disk that never syncs loses acknowledged trials."""

    class Careless(MemoryFileSystem):
        def fsync(self, handle):
            pass

        fdatasync = fsync

        def sync_directory(self, path):
            pass

    losses = 0
    for seed in range(20):
        fs, acknowledged = Careless(), {}
        fs.mkdir(ROOT)
        MemoryFileSystem.sync_directory(fs, Path("/"))
        run(fs, acknowledged)
        fs.lose_power(Random(seed))
        try:
            require_sound(fs, acknowledged)
        except (AssertionError, KeyError):
            losses += 1
    assert losses >= 15
