"""Reading the tables of a page is a plain module beside the tests; so is building records, beside those of analysis."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "analysis")]
