"""Run the fake experiment with a real tracker: ``track_real.py FOLDER OF PACKAGES, RECORDS, NAME:TARGET, TRIALS``.

The packages come behind our own on the path, so that the libraries of the tracker do not replace ours.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "fakes")]

if __name__ == "__main__":
    from study_fakes import run_fake

    packages, records, tracker, trials = sys.argv[1:]
    sys.path.append(packages)
    shown = []
    settings = {"track": (tracker,)}
    run_fake(Path(records), settings=settings, show=shown.append, trials=int(trials))
    notices = [status.notice for status in shown if status.notice]
    sys.exit("\n".join(notices) or 0)
