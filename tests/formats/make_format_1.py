"""Makes format_1/: trees and a table as batchscale 0.1 (format 1) wrote them. Run with that version's code, once.

    PYTHONPATH=<a checkout of commit 0fc2048>/src python tests/formats/make_format_1.py

- ``finished``: two batch sizes, one of them searched twice, with INFEASIBLE trials;
- ``interrupted``: the same experiment, its process killed in the middle, with journals of running trials;
- ``table``: the import of ``finished``;
- ``extended.json``: what the old code recorded when ``finished`` was asked for more trials and steps.
"""

import json
import multiprocessing
import os
import shutil
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent / "format_1"

EXPERIMENT = """\
goal = "val/loss < 0.05"
batch_sizes = [4, 64]
trials = {trials}
stop = "race"
finishers = 2

[workload]
dataset = "noisy_quadratic"
model = "quadratic"
optimizer = "sgd"
dataset_options = {{ dimension = 20 }}

[budget]
steps = {steps}

[evaluation]
count = 20

[search]
repeats = 1
max_attempts = 40

[search.space]
learning_rate = {{ type = "DOUBLE", scale = "LOG_SCALE", min_value = 0.02, max_value = 0.1 }}

[search.per_batch_size.64]
learning_rate = {{ type = "DOUBLE", scale = "LOG_SCALE", min_value = 0.3, max_value = 8.0 }}
"""


def run(out: Path, trials: int = 5, steps: int = 400) -> None:
    from batchscale.runners.preflight import make_checked_plan
    from batchscale.runners.session import RunSettings, run_plan

    from batchscale.spec import read_experiment

    file = out.parent / f"{out.name}.toml"
    file.write_text(EXPERIMENT.format(trials=trials, steps=steps))
    run_plan(make_checked_plan(read_experiment(file), None), out, RunSettings("inline", keep_states_gb=0))


def run_and_die(out: Path, appends: int) -> None:
    from batchscale.records.writer import StudyWriter

    from batchscale.runners import trial_store

    trial_store.JOURNAL_AFTER_S = 0.0
    append, count = StudyWriter.append, [0]

    def counted(self, *args, **kwargs):
        append(self, *args, **kwargs)
        count[0] += 1
        if count[0] == appends:
            os._exit(9)

    StudyWriter.append = counted
    run(out)


def trials_of(root: Path) -> dict[str, object]:
    found = {}
    for path in sorted(root.rglob("metadata.json")):
        if ".batchscale" not in path.parts:
            metadata = json.loads(path.read_text())
            rows = (path.parent / "measurements.csv").read_text().splitlines()
            found[str(path.parent.relative_to(root))] = {**metadata, "rows": rows}
    return found


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    work = Path(tempfile.mkdtemp())
    os.chdir(work)  # so that no path of this machine is recorded
    run(Path("finished"))
    shutil.copytree(Path("finished"), HERE / "finished")
    child = multiprocessing.get_context("spawn").Process(target=run_and_die, args=(Path("interrupted"), 18))
    child.start()
    child.join()
    assert child.exitcode == 9
    shutil.copytree("interrupted", HERE / "interrupted")
    from batchscale.records import import_records

    import_records(Path("finished"), HERE / "table")
    run(Path("finished"), trials=7, steps=600)
    (HERE / "extended.json").write_text(json.dumps(trials_of(Path("finished")), indent=1, sort_keys=True) + "\n")
    for path in HERE.rglob("*.toml"):
        path.unlink()
    for folder in (HERE / "finished", HERE / "interrupted"):
        shutil.rmtree(folder / ".batchscale" / "checkpoints", ignore_errors=True)
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
