"""A process that runs an experiment on the fake engine: ``python run_fake_experiment.py FOLDER key=value…``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from study_fakes import fake_space, run_fake

from batchscale.errors import REQUEUE
from batchscale.run.loop import RunResult

if __name__ == "__main__":
    options = dict(pair.split("=", 1) for pair in sys.argv[2:])
    runner, trials = options.pop("runner", "local"), int(options.pop("trials", "20"))
    settings = {"workers": None, "ray_address": options.pop("ray_address")} if runner == "ray" else {}
    outcome = run_fake(
        Path(sys.argv[1]), runner, space=fake_space(0.001, 30.0), options=options, trials=trials, settings=settings
    )
    sys.exit(0 if outcome.result is RunResult.FINISHED else REQUEUE)
