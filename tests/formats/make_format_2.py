"""Makes format_2/: trees, a table and a mirror as format 2 was first released. Run with that version's code, once.

    PYTHONPATH=<a checkout of commit 65f7eac>/src python tests/formats/make_format_2.py

- ``finished``, ``interrupted``, ``table`` and ``extended.json``: as in format_1;
- ``trainer``: the study of a script of the user's own, with a trial that failed;
- ``mirror``: the mirror of ``trainer``.
"""

import json
import multiprocessing
import os
import shutil
import tempfile
from pathlib import Path

from make_format_1 import EXPERIMENT, trials_of

HERE = Path(__file__).resolve().parent / "format_2"

TRAINER = """\
goal = "val/error < 0.2"
batch_sizes = [8, 32]
trials = 3

[workload]
dataset = "numbers"
model = "formula"
optimizer = "none"

[budget]
steps = 40

[evaluation]
every = 10

[search]
repeats = 0

[search.space]
learning_rate = { type = "DOUBLE", scale = "LOG_SCALE", min_value = 0.001, max_value = 0.5 }

[trainer]
command = ["python3", "train.py"]
"""

SCRIPT = """\
import math

import batchscale.trial as trial

run = trial.start()
if run.batch_size == 32 and run.trial_id == 2:
    raise SystemExit("this trial cannot be trained")
for step, _ in run.steps(lambda step: step):
    if run.due(step):
        run.report(step, {"val/error": math.exp(-run["learning_rate"] * step * math.sqrt(run.batch_size))})
"""


def run(out: Path, text: str) -> None:
    from batchscale.driver.preflight import make_checked_plan
    from batchscale.driver.session import RunSettings, run_plan
    from batchscale.spec import parse_experiment

    plan = make_checked_plan(parse_experiment(text, folder=Path.cwd()), None)
    run_plan(plan, out, RunSettings("inline", keep_states_gb=0))


def run_and_die(out: Path, appends: int) -> None:
    from batchscale.protocol import trial_store
    from batchscale.records.tree.writer import StudyWriter

    trial_store.JOURNAL_AFTER_S = 0.0
    append, count = StudyWriter.append, [0]

    def counted(self, *args, **kwargs):
        append(self, *args, **kwargs)
        count[0] += 1
        if count[0] == appends:
            os._exit(9)

    StudyWriter.append = counted
    run(out, EXPERIMENT.format(trials=5, steps=400))


def main() -> None:
    from batchscale.records import import_records
    from batchscale.records.mirror import open_mirror

    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    work = Path(tempfile.mkdtemp())
    os.chdir(work)  # so that no path of this machine is recorded
    run(Path("finished"), EXPERIMENT.format(trials=5, steps=400))
    shutil.copytree("finished", HERE / "finished")
    child = multiprocessing.get_context("spawn").Process(target=run_and_die, args=(Path("interrupted"), 18))
    child.start()
    child.join()
    assert child.exitcode == 9
    shutil.copytree("interrupted", HERE / "interrupted")
    import_records(Path("finished"), HERE / "table")
    run(Path("finished"), EXPERIMENT.format(trials=7, steps=600))
    (HERE / "extended.json").write_text(json.dumps(trials_of(Path("finished")), indent=1, sort_keys=True) + "\n")

    Path("train.py").write_text(SCRIPT)
    run(Path("trainer"), TRAINER)
    shutil.rmtree("trainer/.batchscale/logs", ignore_errors=True)
    shutil.copytree("trainer", HERE / "trainer")
    assert open_mirror(Path("trainer"), f"file://{HERE}/mirror").sync()
    for folder in ("finished", "interrupted", "trainer"):
        shutil.rmtree(HERE / folder / ".batchscale" / "checkpoints", ignore_errors=True)
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
