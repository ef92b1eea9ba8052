"""What an experiment would take: asked of `batchscale validate` in a process of its own, because it loads JAX."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from batchscale.errors import RunError, one_line

LONGEST_S = 120.0
_ONE_AT_A_TIME = threading.Lock()


def estimate(text: str) -> dict[str, Any]:
    """The object of ``batchscale validate --json``, with the time of the run here where it can be measured.

    Raises:
        RunError: the experiment is refused, with the reason; or it takes too long to find out.
    """
    if not _ONE_AT_A_TIME.acquire(blocking=False):
        raise RunError("Another estimate is being made. Wait a moment and ask again.")
    try:
        with tempfile.TemporaryDirectory(prefix="batchscale-") as folder:
            file = Path(folder) / "experiment.toml"
            file.write_text(text, encoding="utf-8")
            command = [sys.executable, "-m", "batchscale", "validate", str(file), "--time", "--json"]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=LONGEST_S, stdin=subprocess.DEVNULL, check=False,
                env={**os.environ, "NO_COLOR": "1"}, cwd=folder,
            )  # fmt: skip
            if done.returncode != 0:
                raise RunError(one_line(done.stderr.strip().replace(f"{folder}/", ""), 600) or "The check failed.")
            found: dict[str, Any] = json.loads(done.stdout)
            return found
    except subprocess.TimeoutExpired:
        raise RunError(f"Timing the steps takes longer than {LONGEST_S:g} s here; start it and watch it.") from None
    except ValueError:
        raise RunError("The estimate could not be read.") from None
    finally:
        _ONE_AT_A_TIME.release()
