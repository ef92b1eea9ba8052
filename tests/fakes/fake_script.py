"""A script that trains nothing: its error falls by a formula, and it misbehaves when told to.

``python fake_script.py key=value…``; its state is one number, so that resumed and uninterrupted can be compared.
"""

import math
import os
import signal
import sys
import time
from pathlib import Path

import batchscale.trial as trial

OPTIONS = dict(pair.split("=", 1) for pair in sys.argv[1:] if "=" in pair)


def say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def mischief(run, step) -> None:
    if step != int(OPTIONS.get("at", 30)) or str(run.trial_id) not in OPTIONS.get("bad", str(run.trial_id)).split(","):
        return
    once = OPTIONS.get("once")
    if once is not None:
        marker = Path(once) / f"{run.batch_size}-{run.trial_id}"
        if marker.exists():
            return
        marker.touch()
    kind = OPTIONS.get("mischief")
    if kind:
        say("about to misbehave")
    if kind == "exit":
        sys.exit(int(OPTIONS.get("code", 1)))
    if kind == "raise":
        raise ValueError("this trial cannot be trained")
    if kind == "secrets":
        say(f"the variables are {os.environ['FAKE_API_KEY']} and {os.environ['OTHER_TOKEN']}")
        sys.exit(1)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "memory":
        raise MemoryError("no room")
    if kind == "hang":
        time.sleep(600)
    if kind == "flood":
        for _ in range(int(OPTIONS.get("lines", 20000))):
            say("x" * 200)
    if kind == "backwards":
        run.report(step - 10, {"val/error": 0.5})
    if kind == "unasked":
        for extra in range(3):
            run.report(step - 3 + extra, {"val/error": 0.5})
    if kind == "nan":
        run.report(step, {"val/error": math.nan})
    if kind == "inf":
        run.report(step, {"val/error": math.inf})
    if kind == "diverged":
        run.diverged(step)
    if kind == "other_metric":
        run.report(step, {"val/los": 0.5})
    if kind == "bad_name":
        run.report(step, {"error": 0.5})


def main() -> None:
    time.sleep(float(OPTIONS.get("import_s", 0)))
    run = trial.start(learning_rate=0.1)
    run.tokens_per_example = int(OPTIONS["tokens"]) if "tokens" in OPTIONS else run.tokens_per_example
    total = [0.0]

    def load(folder: Path) -> None:
        total[0] = float((folder / "total").read_text())

    def save(folder: Path) -> None:
        (folder / "total").write_text(repr(total[0]))

    start = (run.restore(load) if OPTIONS.get("restore", "1") == "1" else None) or 0
    keep = save if OPTIONS.get("save_in_loop") else None
    say(f"trial {run.trial_id} from step {start}")
    if "starts" in OPTIONS:
        with Path(OPTIONS["starts"]).open("a") as file:
            file.write(f"{run.batch_size} {run.trial_id} {start} {run.document['resume']}\n")
    for step, _ in run.steps(lambda step: step, start=start, save=keep):
        total[0] += run["learning_rate"]
        time.sleep(float(OPTIONS.get("sleep_s", 0)))
        mischief(run, step)
        if run.due(step) and not (OPTIONS.get("mischief") in ("silent", "gap") and step >= 30 and step != 50):
            value = 1.0 / (1.0 + total[0])
            run.report(step, {"val/error": value, "train/error": value / 2})
    run.save(save)


if __name__ == "__main__":
    main()
