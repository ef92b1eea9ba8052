"""Commands on a Ray cluster of this machine: started, watched, and compared with local ones."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from digits_race import EXPERIMENT
from ray_cluster import wait_for

from batchscale.run.status import RunStatus, read_status

LONGER = (
    EXPERIMENT.replace("trials = 8", "trials = 16").replace('"race"', '"budget"').replace("epochs = 6", "epochs = 12")
)
LONG_TRIAL = """
goal = "val/loss < 1e-9"
batch_sizes = [16]
trials = 1
stop = "budget"
[workload]
dataset = "noisy_quadratic"
model = "quadratic"
optimizer = "sgd"
dataset_options = { dimension = 20000 }
[budget]
steps = 50000
[evaluation]
count = 150
examples = { train = 0, val = 1, test = 0 }
[search]
repeats = 0
[search.space]
learning_rate = { type = "DOUBLE", scale = "LOG_SCALE", min_value = 1e-3, max_value = 1e-2 }
"""
"""One trial of a minute or two in programs that were compiled in a hurry: it is checkpointed after 20 seconds."""


def heed_interrupts() -> None:
    """Ctrl-C counts, also where the tests were started in the background of a shell, which ignores it for them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Command:
    """``batchscale run`` in a process of its own."""

    def __init__(self, folder: Path, text: str, out: str, *words: str) -> None:
        file = folder / "experiment.toml"
        file.write_text(text)
        self.out, self._since = folder / out, time.time()
        self.log = folder / f"{out}.log"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "batchscale", "run", str(file), "--out", str(self.out), *words],
                env=environment, stdout=log, stderr=log, start_new_session=True, preexec_fn=heed_interrupts,
            )  # fmt: skip

    @property
    def snapshot(self) -> RunStatus | None:
        """How this very run stands; not an earlier one in the same folder."""
        found = read_status(self.out)
        return found if found is not None and found.written_at > self._since else None

    def wait_for(self, found, seconds: float = 180.0, what: str = "it") -> None:
        """Until the snapshot is so."""

        def look() -> bool:
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.log.read_text()[-3000:]}"
            return self.snapshot is not None and found(self.snapshot)

        try:
            wait_for(look, seconds, what)
        except BaseException:
            self.process.kill()
            raise

    def wait_for_training(self) -> None:
        self.wait_for(lambda snapshot: any(study.trial_steps for study in snapshot.studies), what="training")

    def stop(self, number: signal.Signals = signal.SIGINT) -> float:
        """Ask it to stop, as a terminal does; the seconds that it took."""
        started = time.monotonic()
        os.killpg(self.process.pid, number)
        assert self.process.wait(timeout=40) == 75, self.log.read_text()[-3000:]
        return time.monotonic() - started

    def finish(self, seconds: float = 300.0) -> None:
        assert self.process.wait(timeout=seconds) == 0, self.log.read_text()[-3000:]
