"""Where the seconds of a whole curve go: an experiment run in this one process, with a clock around its parts.

    python benchmarks/whole_curve_parts.py [EXPERIMENT] [--rounds 3]

Each round runs the command with an empty cache of compiled programs and again with that of the first run. Two workers
share what is listed under training, set-up and programs; each imports for itself, and records are written beside them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from whole_curve import QUICKSTART

COMPILING = {
    "/jax/core/compile/jaxpr_trace_duration": "programs: trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "programs: lower",
    "/jax/core/compile/backend_compile_duration": "programs: compile or load",
}
STACK: list[float] = [0.0]  # the seconds of timed parts inside of each open one
SECONDS: dict[str, float] = defaultdict(float)


def timed(owner: Any, name: str, part: str) -> None:
    """Count the time of a function for a part, without that of the parts inside of it."""
    function: Callable[..., Any] = getattr(owner, name)

    def clocked(*given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        STACK.append(0.0)
        try:
            return function(*given, **named)
        finally:
            elapsed = time.perf_counter() - began
            SECONDS[part] += elapsed - STACK.pop()
            STACK[-1] += elapsed

    setattr(owner, name, clocked)


def run_timed(experiment: Path, folder: Path) -> dict[str, float]:
    """Run the experiment in this process, and return the seconds of its parts."""
    began = time.perf_counter()
    import jax.monitoring

    from batchscale.adaptive.rounds import run_experiment
    from batchscale.cli import run_result
    from batchscale.run.loop import RunLoop
    from batchscale.run.preflight import make_checked_plan
    from batchscale.run.settings import RunSettings
    from batchscale.spec.file import read_experiment
    from batchscale.training.population import Population
    from batchscale.training.programs import Programs
    from batchscale.training.study_engine import StudyEngine
    from batchscale.workers import training_engine

    def on_duration(event: str, duration_secs: float, **_: str | int) -> None:
        if event in COMPILING:
            SECONDS[COMPILING[event]] += duration_secs
            STACK[-1] += duration_secs

    SECONDS["imports"] = time.perf_counter() - began
    jax.monitoring.register_event_duration_secs_listener(on_duration)
    timed(training_engine, "get_workload", "set-up: model and data")
    timed(Programs, "__init__", "set-up: model and data")
    timed(Programs, "init", "trials: start")
    timed(Population, "place", "trials: move states")
    timed(Population, "finish", "trials: store last states")
    timed(Programs, "train_and_measure", "training and measuring")
    timed(StudyEngine, "advance", "Python around training")
    timed(RunLoop, "_write", "records")
    timed(run_result, "print_result", "result")
    plan = make_checked_plan(read_experiment(experiment), None)
    run_experiment(plan, folder, RunSettings("inline"))
    run_result.print_result(folder, plan)
    SECONDS["everything else"] = time.perf_counter() - began - sum(SECONDS.values())
    return dict(SECONDS)


def main() -> None:
    """Print a table of parts: medians over the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path, nargs="?", default=QUICKSTART)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="run once into this folder and print JSON")
    given = parser.parse_args()
    if given.out:
        seconds = run_timed(given.experiment, given.out)
        print(json.dumps(seconds), file=sys.stderr)
        return
    rows: list[list[dict[str, float]]] = [[], []]
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(given.rounds):
            for place, kind in enumerate(("cold", "warm")):
                out = Path(temporary) / f"{kind}-{number}"
                words = [sys.executable, __file__, str(given.experiment), "--out", str(out)]
                env = {**os.environ, "BATCHSCALE_CACHE": f"{temporary}/cache-{number}"}
                answer = subprocess.run(words, check=True, capture_output=True, text=True, env=env)
                rows[place].append(json.loads(answer.stderr.splitlines()[-1]))
    print("| part, in one process | empty cache, s | filled cache, s |\n|---|---:|---:|")
    for part in rows[0][0]:
        cold, warm = (median(row.get(part, 0.0) for row in kind) for kind in rows)
        print(f"| {part} | {cold:.2f} | {warm:.2f} |")
    cold, warm = (median(sum(row.values()) for row in kind) for kind in rows)
    print(f"| sum | {cold:.1f} | {warm:.1f} |")


if __name__ == "__main__":
    main()
