"""Trackers of tests, named ``track_to_list:Class:TARGET``: they write what they get to a file, fail, or block."""

import json
import time
from pathlib import Path

from batchscale.run.trackers.tracker import Tracker


class ToFile(Tracker):
    def on_measurement(self, trial, step, values):
        self._write([trial.name, step, dict(values), dict(trial.config)])

    def on_trial_end(self, trial, status, steps):
        self._write([trial.name, status, steps])

    def _write(self, entry):
        with Path(self.target).open("a") as file:
            file.write(json.dumps(entry) + "\n")


class Failing(ToFile):
    def on_measurement(self, trial, step, values):
        raise ConnectionError("the server is away")


class FailingOnce(ToFile):
    failed = False

    def on_measurement(self, trial, step, values):
        if not FailingOnce.failed:
            FailingOnce.failed = True
            raise ConnectionError("the server was away")
        super().on_measurement(trial, step, values)


class Blocking(ToFile):
    def on_measurement(self, trial, step, values):
        time.sleep(3600)


class Broken(ToFile):
    def __init__(self, target):
        raise SystemError("it cannot be made")
