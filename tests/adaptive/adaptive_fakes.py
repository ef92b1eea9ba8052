"""An adaptive experiment on the fake engine, whose critical batch size is known."""

import sys
from dataclasses import replace
from pathlib import Path

from study_fakes import FAKE_ENGINE, fake_experiment, fake_facts, fake_space

from batchscale.adaptive.rounds import run_experiment
from batchscale.run.settings import RunSettings
from batchscale.spec.adaptive import AdaptivePlan
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.durations import Budget, EvaluationPlan, Unit
from batchscale.spec.experiment import SearchPlan
from batchscale.spec.plan import make_plan

B_CRIT = 32


def adaptive_plan(**aim):
    """The plan of an experiment with "auto"; some values of its aim, or ``experiment`` with others of its own."""
    changes = aim.pop("experiment", {})
    adaptive = replace(AdaptivePlan(factor=2.0, first_trials=8, smallest=1, largest=512), **aim)
    values = {
        "batch_sizes": BatchSizes((), auto=(adaptive.smallest, adaptive.largest)),
        "trials": adaptive.first_trials,
        "finishers": 2,
        "budget": Budget(60_000, Unit.STEPS),
        "evaluation": EvaluationPlan(every=5),
        "search": SearchPlan(repeats=0),
        "adaptive": adaptive,
    }
    return make_plan(fake_experiment(**(values | changes)), fake_facts(fake_space(0.004, 0.04)))


def run_adaptive(root: Path, plan=None, show=lambda _status: None, stop=None, runner="inline", **options):
    """Run it to its end, or until it is stopped."""
    texts = {"b_crit": str(B_CRIT)} | {key: str(value) for key, value in options.items()}
    settings = RunSettings(runner, workers=2, engine=FAKE_ENGINE, engine_options=texts)
    return run_experiment(plan or adaptive_plan(), root, settings, show, stop)


if __name__ == "__main__":
    words = dict(word.split("=") for word in sys.argv[2:])
    run_adaptive(Path(sys.argv[1]), runner="local", **words)
