"""Show that a change of the code leaves the records as they were: run small experiments with two checkouts, compare.

    python scripts/compare_records.py make --source CHECKOUT --out FOLDER
    python scripts/compare_records.py compare FOLDER OTHER

``make`` runs every case below with the code of a checkout, each in a folder of its own. ``compare`` demands that the
record trees have the same files with the same bytes. Measured times are left out; of the working folder only
``experiment.json`` is compared.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VARYING = ("timing", "hardware", "attempts", "wall_s", "started_at", "ended_at", "start_time", "end_time")
"""Keys of our metadata that differ from run to run. After a kill, a trial recorded from its journal has no hardware."""

QUADRATIC = """\
goal = "val/loss < 0.05"
batch_sizes = [4, 64]
trials = 5
stop = "race"
finishers = 2

[workload]
dataset = "noisy_quadratic"
model = "quadratic"
optimizer = "sgd"
dataset_options = { dimension = 20 }

[budget]
steps = 400

[evaluation]
count = 20

[search]
repeats = 1
max_attempts = 40

[search.space]
learning_rate = { type = "DOUBLE", scale = "LOG_SCALE", min_value = 0.02, max_value = 8.0 }
"""

DIGITS = """\
goal = "val/classification_error < 0.1"
batch_sizes = [8, 128]
trials = 6
stop = "race"
finishers = 2

[workload]
dataset = "digits"
model = "fc_64"
optimizer = "nesterov_momentum"

[budget]
steps = 300

[evaluation]
count = 15
"""

SCRIPTED = """\
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


@dataclass(frozen=True)
class Case:
    """An experiment, the options of its runs, and the edits of the file before each further run of the same folder."""

    text: str
    options: tuple[str, ...] = ("--runner", "inline")
    edits: tuple[tuple[tuple[str, str], ...], ...] = ()
    kill_after_trials: int | None = None


def edited(text: str, *edits: tuple[str, str]) -> str:
    """Return the text with every edit made; each must apply."""
    for old, new in edits:
        if old not in text:
            raise ValueError(f"{old!r} is not in the experiment")
        text = text.replace(old, new)
    return text


RACE = 'stop = "race"\nfinishers = 2'
LOCAL = ("--runner", "local", "--workers", "2")
MORE_TRIALS = (("trials = 5", "trials = 7"),)
MORE_STEPS = (("steps = 400", "steps = 600"),)

CASES = {
    "quadratic_race": Case(QUADRATIC),
    "quadratic_goal": Case(edited(QUADRATIC, (RACE, 'stop = "goal"'))),
    "quadratic_budget": Case(edited(QUADRATIC, (RACE, 'stop = "budget"'))),
    "quadratic_race_local": Case(QUADRATIC, LOCAL),
    "quadratic_goal_local": Case(edited(QUADRATIC, (RACE, 'stop = "goal"')), LOCAL),
    "quadratic_budget_local": Case(edited(QUADRATIC, (RACE, 'stop = "budget"')), LOCAL),
    "quadratic_momentum": Case(edited(QUADRATIC, ('"sgd"', '"momentum"'))),
    "quadratic_all_diverge": Case(
        edited(QUADRATIC, ("min_value = 0.02, max_value = 8.0", "min_value = 40.0, max_value = 80.0"))
    ),
    "quadratic_out_of_reach": Case(edited(QUADRATIC, ("< 0.05", "< 0.0000001"))),
    "quadratic_at_edge": Case(edited(QUADRATIC, ("max_value = 8.0", "max_value = 0.03"))),
    "quadratic_one_finisher": Case(edited(QUADRATIC, ("finishers = 2", "finishers = 1"))),
    "quadratic_more_trials": Case(QUADRATIC, edits=(MORE_TRIALS,)),
    "quadratic_more_steps": Case(QUADRATIC, edits=(MORE_STEPS,)),
    "quadratic_more_of_both_local": Case(QUADRATIC, LOCAL, (MORE_TRIALS, MORE_STEPS)),
    "quadratic_more_batch_sizes": Case(QUADRATIC, edits=((("[4, 64]", "[4, 16, 64]"),),)),
    "quadratic_budget_extended": Case(edited(QUADRATIC, (RACE, 'stop = "budget"')), edits=(MORE_STEPS, MORE_TRIALS)),
    "quadratic_killed": Case(edited(QUADRATIC, ("steps = 400", "steps = 40000")), LOCAL, kill_after_trials=2),
    "digits_race": Case(DIGITS),
    "digits_race_local": Case(DIGITS, LOCAL),
    "digits_budget": Case(edited(DIGITS, (RACE, 'stop = "budget"'))),
    "digits_goal_killed": Case(
        edited(DIGITS, (RACE, 'stop = "goal"'), ("steps = 300", "steps = 3000")), LOCAL, kill_after_trials=3
    ),
    "digits_adam": Case(edited(DIGITS, ('"nesterov_momentum"', '"adam"'))),
    "digits_epochs": Case(edited(DIGITS, ("steps = 300", "epochs = 3"))),
    "digits_schedule": Case(edited(DIGITS, ('"nesterov_momentum"', '"nesterov_momentum"\nschedule = "linear"'))),
    "script": Case(SCRIPTED),
    "script_local": Case(SCRIPTED, LOCAL),
    "script_race": Case(edited(SCRIPTED, ("trials = 3", 'trials = 4\nstop = "race"\nfinishers = 1')), LOCAL),
    "script_more_trials": Case(SCRIPTED, edits=((("trials = 3", "trials = 5"),),)),
    "script_killed": Case(edited(SCRIPTED, ("trials = 3", "trials = 12")), LOCAL, kill_after_trials=4),
}


def make(source: Path, out: Path, names: list[str]) -> None:
    """Run the cases with the code of a checkout."""
    for name in names or CASES:
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        started = time.monotonic()
        code = run_case(CASES[name], folder, {**os.environ, "PYTHONPATH": str(source.resolve() / "src")})
        print(f"{name}: exit {code}, {time.monotonic() - started:.0f} s", flush=True)


def run_case(case: Case, folder: Path, environment: dict[str, str]) -> int:
    """Run a case in its folder, which gets ``records``; return the last exit code."""
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    text = case.text
    code = 0
    for edits in ((), *case.edits):
        text = edited(text, *edits)
        (folder / "experiment.toml").write_text(text, encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "batchscale",
            "run",
            "experiment.toml",
            "--out",
            "records",
            "-q",
            *case.options,
        ]
        if case.kill_after_trials is not None:
            kill_when(command, folder, environment, case.kill_after_trials)
        with (folder / "log.txt").open("ab") as log:
            code = subprocess.run(
                command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
            ).returncode
    return code


def kill_when(command: list[str], folder: Path, environment: dict[str, str], trials: int) -> None:
    """Start a run and kill it, workers and all, when it has recorded so many trials."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while process.poll() is None:
        if len(list((folder / "records").glob("*/*/*/*/*/metadata.json"))) >= trials:
            os.killpg(process.pid, signal.SIGKILL)
            break
        time.sleep(0.01)
    process.wait()


def compare(first: Path, second: Path) -> list[str]:
    """Return a line for every difference."""
    lines = []
    for name in sorted({path.name for root in (first, second) for path in root.iterdir() if path.is_dir()}):
        trees = [dict(read_files(root / name / "records")) for root in (first, second)]
        if not any(trees):
            lines.append(f"{name}: no records")
        for file in sorted(trees[0].keys() | trees[1].keys()):
            contents = [tree.get(file) for tree in trees]
            if contents[0] != contents[1]:
                missing = [root for root, content in zip((first, second), contents, strict=True) if content is None]
                lines.append(f"{name}/{file}: " + (f"not in {missing[0]}" if missing else "differs"))
    return lines


def read_files(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every file of a record tree, with measured times taken out of its metadata."""
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if not path.is_file() or (name.startswith(".batchscale/") and name != ".batchscale/experiment.json"):
            continue
        content = path.read_bytes()
        if path.suffix == ".json":
            content = json.dumps(without_varying(json.loads(content)), indent=1).encode()
        yield name, content


def without_varying(value: object) -> object:
    """Return a JSON value without the keys whose values differ from run to run."""
    if isinstance(value, dict):
        return {key: without_varying(item) for key, item in value.items() if key not in VARYING}
    return [without_varying(item) for item in value] if isinstance(value, list) else value


def main() -> None:
    """Make records with a checkout, or compare two folders of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("--source", type=Path, default=Path())
    making.add_argument("--out", type=Path, required=True)
    making.add_argument("names", nargs="*", choices=[[], *CASES])
    comparing = commands.add_parser("compare")
    comparing.add_argument("first", type=Path)
    comparing.add_argument("second", type=Path)
    options = parser.parse_args()
    if options.command == "make":
        make(options.source, options.out, options.names)
        return
    differences = compare(options.first, options.second)
    print("\n".join(differences) or f"The records of {len(list(options.first.iterdir()))} experiments are equal.")
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
