import sys
from pathlib import Path

# builders, the simulation and the witness are plain modules beside the tests
sys.path.insert(0, str(Path(__file__).parent))
