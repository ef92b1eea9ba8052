"""How long a job without work is under way: through the pipe of a local worker, and through the folder of SLURM's.

Workers of both are processes of this machine, and the folder is on its disk: ``python benchmarks/shared_folder.py``.
A silence before the job makes both sides look less often.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / "fakes")]

from fake_slurm import fake_slurm, fake_slurm_runner  # noqa: E402 - after the path
from study_fakes import fake_setup, fake_study  # noqa: E402 - after the path

from batchscale.study.trial import TrialTask  # noqa: E402 - after the path
from batchscale.workers.local import LocalRunner, LocalSettings  # noqa: E402 - after the path
from batchscale.workers.runner import Job, JobResult, Runner  # noqa: E402 - after the path

STUDY = fake_study()
SILENCES_S = {0.0: 200, 1.0: 10, 10.0: 3}


def await_worker(runner: Runner) -> str:
    """The id of its first worker."""
    while not runner.workers:
        runner.wait(0.05)
    return runner.workers[0].worker_id


def time_jobs(runner: Runner) -> dict[float, float]:
    """The median seconds from giving a job to having its answer, by the silence before it."""
    worker, number, found = await_worker(runner), 0, {}
    for silence_s, repeats in SILENCES_S.items():
        times = []
        for _ in range(repeats):
            time.sleep(silence_s)
            number += 1
            started = time.perf_counter()
            runner.submit(worker, Job(number, STUDY, (TrialTask(1, {"learning_rate": 0.1}, 1, 10, -1),)))
            while not any(isinstance(event, JobResult) for event in runner.wait(0.1)):
                pass
            times.append(time.perf_counter() - started)
        found[silence_s] = statistics.median(times)
    return found


def main() -> None:
    """Print both, and their difference."""
    with tempfile.TemporaryDirectory() as name:
        with LocalRunner(fake_setup(), LocalSettings(1, Path(name, "logs"))) as runner:
            pipe = time_jobs(runner)
        with fake_slurm(Path(name)) as slurm, fake_slurm_runner(fake_setup(), Path(name), slurm) as runner:
            folder = time_jobs(runner)
    print("| silence before | pipe | folder |\n|---:|---:|---:|")
    for silence_s in SILENCES_S:
        print(f"| {silence_s:g} s | {1000 * pipe[silence_s]:.1f} ms | {1000 * folder[silence_s]:.1f} ms |")


if __name__ == "__main__":
    main()
