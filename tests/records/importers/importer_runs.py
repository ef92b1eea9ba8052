"""Runs whose steps to result are known in closed form, and what an imported tree says about them.

A run of batch size B at learning rate r has the error exp(-r B step / 4000), measured every 100 steps; at a rate above
5 it diverges. So the first measured step with an error below 0.5 is the multiple of 100 above 4000 ln 2 / (r B).
"""

import math
from pathlib import Path

from typer.testing import CliRunner, Result

from batchscale import Goal, read
from batchscale.analysis import steps_to_result
from batchscale.cli.app import make_app

STEPS = range(100, 1100, 100)
RUNS = [(8, 0.5), (8, 1.5), (16, 0.5), (16, 2.0), (32, 0.25), (32, 6.0), (32, 1.0)]
GOAL = "val/error < 0.5"


def error(batch_size: int, rate: float, step: int) -> float:
    return math.nan if rate > 5 and step > 300 else math.exp(-rate * batch_size * step / 4000)


def expected_curve() -> dict[int, int]:
    best: dict[int, int] = {}
    for size, rate in RUNS:
        steps = 100 * (math.floor(40 * math.log(2) / (rate * size)) + 1)
        if rate <= 5 and steps <= STEPS[-1]:
            best[size] = min(steps, best.get(size, steps))
    return best


def imported_curve(tree: Path, goal: str = GOAL) -> dict[int, int]:
    frame = steps_to_result(read(tree), Goal.parse(goal))
    return dict(frame.select("batch_size", "steps").rows())


def run_import(*args: object) -> Result:
    return CliRunner().invoke(make_app("import"), ["import", *map(str, args)])


def flat(result: Result) -> str:
    return " ".join(result.stderr.split()) or repr(result.exception)
