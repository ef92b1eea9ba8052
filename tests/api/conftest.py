"""Built records are a plain module at the tests of analysis."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "analysis"))
