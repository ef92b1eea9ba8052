"""A run that says who it is before it becomes one: ``python -m batchscale.web.launch NOTE WORDS…``.

The process writes itself into the note that the server made, then turns into ``batchscale WORDS…``: the same process,
with the same number and start time. If it cannot write, nothing is run: better none than one that nobody can stop.
"""

import os
import sys
from pathlib import Path

from batchscale.web.claims import claim


def main() -> None:
    """Claim the note that is named on the command line, then become the command behind it."""
    file, *words = sys.argv[1:]
    claim(Path(file))
    os.execv(sys.executable, [sys.executable, "-m", "batchscale", *words])  # noqa: S606 - no shell


if __name__ == "__main__":
    main()
