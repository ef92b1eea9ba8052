import sys
from pathlib import Path

# worker processes import the fakes by name, from the path that the driver has
sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))
