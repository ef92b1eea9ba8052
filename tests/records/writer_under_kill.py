"""Forks a writer, kills it at a random moment, and checks the tree; again and again. Run as a program by the tests.

The parent only reads: with the witness after each kill, with the check of the package at the end of each round.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import records_witness
from records_fakes import make_rows, make_study, make_trial

from batchscale.records.check.tree import check_tree
from batchscale.records.tree.open_study import open_study
from batchscale.records.tree.read import read_tree

STEPS = (0, 10, 20)


def write_for_ever(root, acknowledge):
    with open_study(root, make_study(), notice=lambda _: None) as writer:
        for trial_id in range(1, 10**6):
            if trial_id in writer.committed_trials():
                continue
            table = writer.journal(trial_id)
            done = table.steps if table else []
            for step in STEPS:
                if step not in done:
                    writer.append(trial_id, make_rows(trial_id, [step]), sync=False)
            writer.commit(make_trial(trial_id))
            os.write(acknowledge, b"%d\n" % trial_id)
            if trial_id % 5 == 0 and writer.committed_trials()[trial_id - 1].steps == 20:
                writer.reopen(trial_id - 1)
                writer.append(trial_id - 1, make_rows(trial_id - 1, [30]))
                writer.commit(make_trial(trial_id - 1, 30))


def kill_once(root, delay_s, wait_for_trial):
    """The ids that the writer acknowledged before it was killed, ``delay_s`` after its start or its first trial."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        write_for_ever(root, writing)
    os.close(writing)
    first = os.read(reading, 1000) if wait_for_trial else b""
    time.sleep(delay_s)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the writer failed before it was killed"
    with os.fdopen(reading, "rb") as pipe:
        return {int(line) for line in (first + pipe.read()).split()}


def require_sound(root, acknowledged):
    assert check_tree(root) == []
    trials = records_witness.read_workload(root / "groups" / "tiny" / "net" / "sgd")[8]["trials"]
    assert acknowledged <= set(trials), "a finished trial is lost"
    for trial_id, trial in trials.items():
        wanted = list(STEPS) if trial["steps"] == 20 else [*STEPS, 30]
        assert trial["step"] == wanted
        assert trial["values"] == [list(row.values.values()) for row in make_rows(trial_id, wanted)]
    return len(trials)


def main(root, num_kills, seed):
    chance = random.Random(seed)
    acknowledged = set()
    count = 0
    for number in range(num_kills):
        acknowledged |= kill_once(root, chance.uniform(0.0, 0.1), wait_for_trial=number % 2 == 1)
        if (root / "groups" / "tiny" / "net" / "sgd" / "8" / "study.json").exists():
            count = require_sound(root, acknowledged) if acknowledged else count
    assert read_tree(root).trials.height == count
    sys.stdout.write(f"{num_kills} kills, {count} trials\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
