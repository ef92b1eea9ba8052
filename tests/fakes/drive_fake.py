"""A process that runs an experiment on the fake engine: ``python drive_fake.py FOLDER key=value…``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from protocol_fakes import fake_space, run_fake

from batchscale.driver.driver import Result
from batchscale.driver.signals import REQUEUE

if __name__ == "__main__":
    options = dict(pair.split("=", 1) for pair in sys.argv[2:])
    outcome = run_fake(Path(sys.argv[1]), "local", space=fake_space(0.001, 30.0), options=options, trials=20)
    sys.exit(0 if outcome.result is Result.FINISHED else REQUEUE)
