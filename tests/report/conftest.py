"""The records made for the tests of figures serve the report as well."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "figures"))
