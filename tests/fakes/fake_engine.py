"""An engine we own: measurements follow from the metaparameters alone, and trials misbehave when told to.

``value`` falls by ``learning_rate`` per step from 1; ``momentum`` encodes mischief (see `_misbehave`). With the option
``b_crit`` it falls more slowly at small batch sizes, so that steps to result follow S_min (1 + b_crit / B).
"""

import os
import resource
import signal
import sys
import time
from pathlib import Path

import psutil

from batchscale.spec.plan import Study
from batchscale.study.trial import TrialProgress
from batchscale.workers.runner import Setup

METRIC = "val/error"


def error_at(learning_rate: float, step: int) -> float:
    return 1.0 / (1.0 + learning_rate * step)


def divergence_step(parameters) -> int | None:
    rate = parameters["learning_rate"]
    return None if rate < 1 else max(1, int(40 / rate))


class FakeEngine:
    def __init__(self, setup: Setup, study: Study, population: int | None) -> None:
        self.options = setup.options
        self.study = study
        self.population_size = population or int(self.options.get("population", 1))
        self.saved: list[int] = []
        self.held: dict[int, int] = {}

    def advance(self, tasks, should_stop, goal):
        return [self._advance(task, should_stop, goal) for task in tasks]

    def _advance(self, task, should_stop, goal):
        _misbehave(self.options, task)
        diverged = divergence_step(task.parameters)
        share = self.study.batch_size / (self.study.batch_size + float(self.options.get("b_crit", 0)))
        rows, step, stop_at = [], 0, None
        for step in self.study.evaluation_steps:
            if step > task.until_step or (diverged is not None and step >= diverged) or should_stop():
                break
            time.sleep(float(self.options.get("sleep_s", 0)))
            value = error_at(share * task.parameters["learning_rate"], step)
            if step > task.from_step:
                rows.append((step, {METRIC: value, "train/error": value / 2}))
            if goal is not None and goal.is_reached_by(value):
                stop_at = step
                break
        ended = diverged if diverged is not None and diverged <= task.until_step and stop_at is None else None
        self.held[task.trial_id] = step
        return TrialProgress(task.trial_id, tuple(rows), rows[-1][0] if rows else 0, ended, {"steps": float(len(rows))})

    def save(self, trial_id: int, ending: bool = False) -> None:
        self.saved.append(trial_id)
        self._log("save_log", str(trial_id))

    def finish(self, trial_id: int, step: int) -> None:
        self.held.pop(trial_id, None)
        self._log("finish_log", f"{self.study.batch_size} {trial_id} {step}")

    def discard(self, trial_id: int) -> None:
        self.held.pop(trial_id, None)
        self._log("discard_log", f"{self.study.batch_size} {trial_id}")

    def _log(self, name: str, line: str) -> None:
        if name in self.options:
            with Path(self.options[name]).open("a") as file:
                file.write(f"{line}\n")


def _meet(folder: Path) -> None:
    """Wait until two processes have come here; TimeoutError if the other does not come."""
    (folder / str(os.getpid())).touch()
    until = time.monotonic() + 20
    while len(list(folder.iterdir())) < 2:
        if time.monotonic() > until:
            raise TimeoutError("alone")
        time.sleep(0.01)


def _misbehave(options, task) -> None:
    if "meeting" in options:
        _meet(Path(options["meeting"]))
    if str(task.trial_id) not in options.get("bad_trials", "").split(","):
        return
    once = options.get("once")
    if once is not None:
        marker = Path(once) / f"misbehaved-{task.trial_id}"
        if marker.exists():
            return
        marker.touch()
    sys.stderr.write("about to misbehave\n")
    sys.stderr.flush()
    kind = options["mischief"]
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "exit":
        os._exit(3)
    if kind == "raise":
        raise ValueError("this trial cannot be trained")
    if kind == "memory":
        raise MemoryError("no room")
    if kind == "allocate":  # more than the process may have, as the system counts it
        resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + 10**8,) * 2)
        bytearray(10**9)
    if kind == "hang":
        time.sleep(600)


def make_engine(setup: Setup, study: Study, population: int | None) -> FakeEngine:
    return FakeEngine(setup, study, population)


def fail_to_start(setup: Setup, study: Study, population: int | None) -> FakeEngine:
    raise OSError("no such device")
