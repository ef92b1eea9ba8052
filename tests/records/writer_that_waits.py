"""Opens a study, says so, and waits. Run as a program by the tests."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from records_fakes import make_study

from batchscale.records.tree.open_study import open_study

if __name__ == "__main__":
    with open_study(Path(sys.argv[1]), make_study()):
        sys.stdout.write("open\n")
        sys.stdout.flush()
        time.sleep(60)
