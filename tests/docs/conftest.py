"""Tables of a page, built records and warm processes are plain modules: here, at the tests of analysis, in fakes."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(TESTS / "analysis"), str(TESTS / "fakes")]
