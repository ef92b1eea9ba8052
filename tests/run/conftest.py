import sys
from pathlib import Path

# worker processes import the fakes, and engines that tests make, by name, from the path that the driver has
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "fakes")]
